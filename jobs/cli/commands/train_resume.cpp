// SPDX-License-Identifier: Apache-2.0
// How a training run continues from a checkpoint.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "jobs/cli/commands/train.hpp"
#include "jobs/cli/session/checkpoint_defaults.hpp"
#include "jobs/cli/session/lora.hpp"
#include "jobs/cli/session/model_tensors.hpp"
#include "jobs/cli/session/preferences.hpp"
#include "jobs/cli/session/weights.hpp"
#include "models/lora_config.hpp"
#include "runtime/base/log.hpp"
#include "runtime/shard/memory.hpp"

namespace tessera::jobs {

/// Sets what a run that continues from this checkpoint begins with, and what it says of it. Throws Error.
void TrainRun::read_candidate(const io::CheckpointReader& reader, const std::string& path) {
  const io::Manifest& manifest = reader.manifest();
  require_same_adapters(model_, config_.text, {reader.auxiliary_file(io::adapter_config_name), path});
  if (copied_crc_) check_copied_crc(manifest, path, config_.directory, *copied_crc_);
  progress_ = read_progress(manifest, path, data_identity_, options_.flag("ignore_data_skip"));
  require_kept_defaults(
      options_, checkpoint_defaults(manifest, path),
      {trainer_options_.run.batch.global_batch, tessera::name_of(trainer_options_.run.strategy.policy.param_dtype)},
      path);
  const FoundBest found = progress_.best
                              ? find_best(world_, options_, manifest, path, *progress_.best, data_identity_.validation)
                              : FoundBest{};
  progress_.best = found.best;
  lost_best_ = found.lost;
  length_.resume(progress_.step, progress_.samples, trainer_options_.run.batch.global_batch);
  const std::vector<SettingChange> data_changes = changed_data(manifest, data_identity_);
  const ResumedRate rate = resume_rate({.options = &options_,
                                        .manifest = &manifest,
                                        .path = path,
                                        .global_batch = trainer_options_.run.batch.global_batch,
                                        .run_steps = length_.total_steps,
                                        .same_data = data_changes.empty()},
                                       progress_);
  trainer_options_.lr = progress_.schedule->lr;
  unknown_settings_ = rate.unknown;
  warmup_ignored_ = rate.warmup_ignored;
  resume_lines_ = rate.lines;
  if (const std::string kept = kept_defaults(options_, trainer_options_.run.batch); !kept.empty())
    resume_lines_.push_back("resume    kept from the checkpoint, since no option sets others: " + kept);
  nlohmann::ordered_json settings = training_settings(trainer_options_);
  if (data_.train->masked()) settings.update(text_settings(options_, trainer_options_.run.batch.micro_batch));
  if (const std::string stamp = reference_stamp(options_, model_, config_); !stamp.empty())
    settings[reference_setting] = stamp;
  changes_ = changed_settings(manifest, settings);
  const auto is_reference = [](const SettingChange& change) { return change.name == reference_setting; };
  if (std::erase_if(changes_, is_reference) > 0)
    log::warn(84,
              "the files of the reference model are not those that the checkpoint's run began with (names, sizes, "
              "times or bits differ): if their weights do, the loss continues as another one");
  changes_.insert(changes_.end(), data_changes.begin(), data_changes.end());
  for (SettingChange& change : changed_config(reader.auxiliary_file("config.json"), config_.text))
    changes_.push_back(std::move(change));
  if (const std::string list = unknown_settings(manifest, settings); !list.empty())
    unknown_settings_ += (unknown_settings_.empty() ? "" : "; ") + ("whether these differ is unknown: " + list);
  frozen_change_ = frozen_change(manifest.frozen, model_.own_params());
}

/// Loads the parameters, and the optimizer's states unless --resume_only_model. Throws Error.
void TrainRun::load_candidate(const io::CheckpointReader& reader, const std::string& path) {
  io::TrainingState state = trainer_->state();
  const bool only_model = options_.flag("resume_only_model");
  if (only_model) {
    state.states.clear();
    progress_.states_from = progress_.step - progress_.skipped;
  } else {
    require_states(reader.manifest(), path, trainer_options_.optimizer);
  }
  const std::vector<std::string> saved = io::state_names(reader.manifest().files);
  const bool new_residuals =
      std::erase_if(state.states, [&](const StateSpec& spec) {
        return spec == shard::residual_state() && std::ranges::find(saved, spec.name) == saved.end();
      }) > 0;
  if (reader.manifest().base)
    read_base(world_.text_of_rank_0([&] { return base_directory(reader.manifest(), path, config_.directory); }));
  else if (saves_only_trainable(options_)) read_base(config_.directory);
  const io::LoadReport report = reader.load(model_.own_params(), trainer_->plan().layout, state);
  resume_lines_.insert(
      resume_lines_.begin(),
      strfmt("resume    %s | step %ld, sample %ld | ", path.c_str(), progress_.step, progress_.samples) +
          human_bytes(report.bytes) + strfmt(" read in %.1f s", report.seconds));
  if (new_residuals) resume_lines_.push_back("resume    residuals of int8 gradients start at zero");
  if (only_model) resume_lines_.push_back("resume    the model alone: optimizer states start at zero");
}

bool TrainRun::resume() {
  data_identity_ = identity_of(data_, options_, max_length_);
  const RunLength length = length_;  // of a run from the beginning
  for (std::size_t i = 0; i < candidates_.size(); ++i) {
    const Candidate& candidate = candidates_[i];
    const bool skips_damage = !candidate.directory.empty() && i + 1 < candidates_.size();
    try {
      const io::CheckpointReader reader(world_, candidate.checkpoint);
      length_ = length;
      read_candidate(reader, candidate.checkpoint);
      load_candidate(reader, candidate.checkpoint);
      resumed_from_ = candidate.checkpoint;
    } catch (const Error& error) {
      // `auto` skips damaged checkpoints. Any other error (EIO too), or one in a checkpoint given by PATH, ends the
      // run.
      if (error.code() != ExitCode::data || !io::is_damage(error.line()) || !skips_damage) throw;
      if (world_.rank() == 0) log::warn(26, candidate.checkpoint + " is skipped: " + error.line());
      continue;
    }
    require_max_steps(options_, progress_.step, candidate.checkpoint);
    say_what_differs(candidate.checkpoint);
    if (frozen_change_.any()) resume_lines_.push_back("resume    " + frozen_change_.text());
    if (base_ && frozen_checksum() != *base_)
      throw Error(ExitCode::usage,
                  "--save_only_trainable leaves out frozen parameters, and those of " + candidate.checkpoint +
                      " are not those of " + base_directory_,
                  "--save_only_trainable: " + options_.value("save_only_trainable").source.text,
                  "Drop it, or keep trainable what was trained before");
    trainer_->parameters_changed();
    trainer_->resume_at({progress_.step, progress_.skipped, progress_.states_from});
    trainer_->resume_schedule(trainer_options_.lr);
    if (progress_.loss_scale) trainer_->resume_loss_scale(*progress_.loss_scale);
    first_step_ = progress_.step;
    run_directory_ = candidate.directory;
    return true;
  }
  if (resumes_automatically(options_))
    resume_lines_ = {"resume    no checkpoint under " + options_.text("output_dir") + ": starting from the beginning"};
  return false;
}

void TrainRun::say_what_differs(const std::string& path) const {
  if (!lost_best_.empty()) log::warn(32, lost_best_);
  if (!warmup_ignored_.empty()) log::warn(63, warmup_ignored_);
  if (!changes_.empty()) log::warn(60, "the run differs from the checkpoint that it resumes: " + text_of(changes_));
  if (!unknown_settings_.empty())
    log::warn(61,
              path + " was written by an older program that did not record all that is compared: " + unknown_settings_);
}

}  // namespace tessera::jobs
