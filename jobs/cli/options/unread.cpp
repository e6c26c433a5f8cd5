// SPDX-License-Identifier: Apache-2.0
// Options that nothing reads beside the others that were given: they are accepted, and a warning (W024) names them.
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

}  // namespace

void Options::note_unread() {
  if ((commands & for_runs) == 0) return;
  const auto note = [this](const char* name, const std::string& why) {
    without_effect.push_back(strfmt("--%s %s has no effect: ", name, text(name).c_str()) + why + " [" +
                             value(name).source.text + "]");
  };
  for (const auto& [option, other, values] : read_with)
    if (given(option) && !is_named(values, text(other)))
      note(option,
           strfmt("it is for --%s %s, and that is ", other, split_words(values, ' ').front().c_str()) + text(other));
  const bool evaluates = has("val_dataset") || real("split_dataset_ratio") > 0;
  const bool asked = given("eval_steps") && (is_share("eval_steps") || integer("eval_steps") > 0);
  constexpr const char* no_data = "there is no validation data (--val_dataset FILE, or --split_dataset_ratio 0.1)";
  if (asked && !evaluates) note("eval_steps", no_data);
  if (given("eval_strategy") && text("eval_strategy") == "steps" && !evaluates) note("eval_strategy", no_data);
}

}  // namespace tessera::jobs
