// SPDX-License-Identifier: Apache-2.0
// Options that nothing reads beside the others that were given: they are accepted, and a warning (W024) names them.
#include <algorithm>

#include "jobs/cli/options/options.hpp"
#include "jobs/cli/options/other_tools.hpp"

namespace tessera::jobs {

namespace {

/// An option that is read with some values of another one only.
struct ReadWith {
  const char* option;
  const char* other;   // the option whose value decides
  const char* values;  // with which it is read, separated by blanks
};
constexpr ReadWith read_with[] = {
    {"adam_beta1", "optim", "adamw adamw_torch adamw_torch_fused adamw_8bit adamw_bnb_8bit"},
    {"adam_beta2", "optim", "adamw adamw_torch adamw_torch_fused adamw_8bit adamw_bnb_8bit"},
    {"adam_epsilon", "optim", "adamw adamw_torch adamw_torch_fused adamw_8bit adamw_bnb_8bit"},
    {"momentum", "optim", "sgd"},
    {"nesterov", "optim", "sgd"},
    {"min_lr", "lr_scheduler_type", "cosine_with_min_lr wsd warmup_stable_decay"},
    {"min_lr_rate", "lr_scheduler_type", "cosine_with_min_lr wsd warmup_stable_decay"},
    {"lr_decay_steps", "lr_scheduler_type", "wsd warmup_stable_decay"},
};

/// An option that is read if one of some others asks for something.
struct ReadBeside {
  const char* option;
  const char* others;  // separated by blanks; a number asks for something above 0, a flag if it is true
  const char* without;
};
constexpr const char* no_validation = "there is no validation data (--val_dataset FILE, or --split_dataset_ratio 0.1)";
constexpr ReadBeside read_beside[] = {
    {"eval_max_batches", "val_dataset split_dataset_ratio", no_validation},
    {"warmup_type", "warmup_steps warmup_ratio", "there is no warm-up (--warmup_steps or --warmup_ratio)"},
    {"sample_tokens", "sample_prompt prompt_file", "there is no --sample_prompt or --prompt_file"},
    {"sample_temperature", "sample_prompt prompt_file", "there is no --sample_prompt or --prompt_file"},
    {"trace_dir", "profile_steps", "no steps are profiled (--profile_steps A:B)"},
    {"profile_ranks", "profile_steps", "no steps are profiled (--profile_steps A:B)"},
    {"max_shard_size", "save_model", "--save_model is false"},
    {"save_dtype", "save_model", "--save_model is false"},
    {"ignore_data_skip", "resume_from_checkpoint", "nothing is resumed (--resume_from_checkpoint)"},
    {"resume_only_model", "resume_from_checkpoint", "nothing is resumed (--resume_from_checkpoint)"},
};

bool asks(const Options& options, const char* name) {
  if (!options.has(name)) return false;
  const std::string text = options.text(name);
  if (const auto flag = parse_flag(text); flag && !parse_integer(text)) return *flag;
  const auto number = parse_real(text);
  return text != "none" && (!number || *number > 0);
}

}  // namespace

std::string Options::no_effect(const char* name, const std::string& why) const {
  return strfmt("--%s %s has no effect: ", name, text(name).c_str()) + why + " [" + value(name).source.text + "]";
}

void Options::note_unread() {
  if ((commands & for_runs) == 0) return;
  const auto note = [this](const char* name, const std::string& why) {
    without_effect.push_back(no_effect(name, why));
  };
  for (const auto& [option, other, values] : read_with)
    if (given(option) && !is_named(values, text(other)))
      note(option,
           strfmt("it is for --%s %s, and that is ", other, split_words(values, ' ').front().c_str()) + text(other));
  const bool evaluates = has("val_dataset") || real("split_dataset_ratio") > 0;
  const bool asked = given("eval_steps") && (is_share("eval_steps") || integer("eval_steps") > 0);
  if (asked && !evaluates) note("eval_steps", no_validation);
  if (given("eval_strategy") && text("eval_strategy") == "steps" && !evaluates) note("eval_strategy", no_validation);
  for (const auto& [option, others, without] : read_beside) {
    const std::vector<std::string> names = split_words(others, ' ');
    if (given(option) && text(option) != find_option(option)->default_value &&
        std::ranges::none_of(names, [this](const std::string& other) { return asks(*this, other.c_str()); }))
      note(option, without);
  }
  if (given("warmup_ratio") && asks(*this, "warmup_ratio") && asks(*this, "warmup_steps"))
    note("warmup_ratio", "--warmup_steps is " + text("warmup_steps"));
  const std::vector<std::string>& reports = list("report_to");
  if (given("logging_dir") && std::ranges::find(reports, "tensorboard") == reports.end())
    note("logging_dir", "--report_to is " + text("report_to"));
}

}  // namespace tessera::jobs
