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

std::string names_of_commands(unsigned commands) {
  std::string names;
  for (const CommandSpec& command : command_table())
    if ((commands & command.bit) != 0) names += (names.empty() ? "" : ", ") + std::string(command.name);
  return names;
}

std::string instead_of(const OptionSpec& spec, unsigned commands) {
  const std::string name = spec.name;
  if (commands == for_generate && (name == "val_dataset" || name == "dataset")) return "Use --prompt_file";
  if (commands == for_eval && name == "val_dataset") return "eval reads the files of --dataset";
  if ((commands & ~(for_convert | for_tokenize)) == 0 && name == "output_dir") return "Use --out";
  if (commands == for_convert && name == "model") return "Use --in";
  if ((commands & ~for_inference) == 0 && name == "merge_lora") return "Leave it out: --adapters is applied as it is";
  if (name == "dtype") return "Use --mixed_precision";
  return "";
}

std::string Options::no_effect(const char* name, const std::string& why) const {
  return strfmt("--%s %s has no effect: ", name, text(name).c_str()) + why + " [" + value(name).source.text + "]";
}

void Options::leave_out_options_of_runs() {
  if ((commands & for_inference) == 0) return;
  for (const OptionSpec& spec : option_table())
    if (given(spec.name) && (spec.commands & commands) == 0 && (spec.commands & for_runs) != 0)
      values_.find(spec.name)->second = default_of(spec);
}

/// Of files and the environment; on the command line such an option is refused. A training run's file is good for other
/// commands too.
void Options::note_other_commands() {
  if (commands == for_config || commands == for_all) return;
  const unsigned readers = commands == for_train ? for_train : commands | for_runs;
  for (const OptionSpec& spec : option_table()) {
    if (!given(spec.name) || (spec.commands & readers) != 0) continue;
    const std::string instead = instead_of(spec, commands);
    without_effect.push_back(no_effect(spec.name, "it is for " + names_of_commands(spec.commands & ~for_config) +
                                                      (instead.empty() ? "" : ". " + instead)));
  }
}

/// What the strategy of saves and evaluations leaves unread.
void Options::note_saves() {
  const auto note = [this](const char* name, const std::string& why) {
    if (given(name) && asks(*this, name)) without_effect.push_back(no_effect(name, why));
  };
  const std::string saves = text("save_strategy"), evaluates = text("eval_strategy");
  const bool by_steps = saves == "steps" && asks(*this, "save_steps");
  if (saves != "steps") note("save_steps", "--save_strategy is " + saves);
  if (evaluates != "steps") note("eval_steps", "--eval_strategy is " + evaluates);
  if (by_steps) note("save_every", "--save_steps is " + text("save_steps"));
  else if (saves != "steps") note("save_every", "--save_strategy is " + saves);
  else if (given("save_steps")) note("save_every", "--save_steps 0 asks for no checkpoint");
  const bool by_time = saves == "steps" && !given("save_steps") && seconds("save_every") > 0;
  if (by_steps || by_time || saves == "epoch") return;
  for (const char* name : {"save_total_limit", "async_save"}) note(name, "no checkpoint is saved but one at a stop");
}

void Options::note_unread() {
  leave_out_options_of_runs();
  note_other_commands();
  if ((commands & for_runs) == 0) return;
  const auto note = [this](const char* name, const std::string& why) {
    without_effect.push_back(no_effect(name, why));
  };
  note_saves();
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
  if (given("num_train_epochs") && given("max_steps") && integer("max_steps") > 0)
    note("num_train_epochs", "--max_steps is " + text("max_steps") + " (" + value("max_steps").source.text + ")");
  if (commands == for_train && given("per_device_eval_batch_size") && !evaluates)
    note("per_device_eval_batch_size", no_validation);
  if (given("warmup_ratio") && asks(*this, "warmup_ratio") && asks(*this, "warmup_steps"))
    note("warmup_ratio", "--warmup_steps is " + text("warmup_steps"));
  const std::vector<std::string>& reports = list("report_to");
  if (given("logging_dir") && std::ranges::find(reports, "tensorboard") == reports.end())
    note("logging_dir", "--report_to is " + text("report_to"));
}

void Options::note_overridden() {
  for (ExternalKey& key : external_keys) {
    if (key.option.empty() || key.outcome == ExternalKey::Outcome::refused) continue;
    const Source& source = value(key.option.c_str()).source;
    const bool from_here = source.text == key.where || source.text.starts_with(key.where + " ") ||
                           source.text.starts_with(key.where + ",");
    if (!from_here && source.precedence > precedence::default_value)
      key.overridden = "; overridden: " + text(key.option.c_str()) + " [" + source.text + "]";
  }
}

}  // namespace tessera::jobs
