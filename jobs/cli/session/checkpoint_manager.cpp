// SPDX-License-Identifier: Apache-2.0
#include "jobs/cli/session/checkpoint_manager.hpp"

#include <sys/statvfs.h>

#include <cerrno>
#include <ctime>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "io/checkpoint/transaction.hpp"
#include "io/inspect/verify.hpp"
#include "jobs/cli/session/host_info.hpp"
#include "jobs/cli/session/signals.hpp"
#include "runtime/base/log.hpp"

namespace tessera::jobs {

CheckpointManager::CheckpointManager(Parts parts)
    : parts_(std::move(parts)),
      limit_(*parts_.options, parts_.started),
      retention_(static_cast<int>(parts_.options->optional_integer("save_total_limit").value_or(2)),
                 parts_.options->has("save_total_limit") ? io::Retention::Removes::any : io::Retention::Removes::own,
                 [this] { parts_.output->check_owner(); }),
      metric_(best_metric(*parts_.options)),
      best_(parts_.best) {
  const Options& options = *parts_.options;
  check_best_steps(options, parts_.total_steps);  // a resume may have changed it
  save_steps_ = options.steps("save_steps", parts_.total_steps);
  saved_step_ = parts_.saved_step;
  enabled_ = options.text("save_strategy") != "no" && (save_steps_ > 0 || options.text("save_strategy") == "epoch");
  const bool by_time = !enabled_ && !options.given("save_steps") && options.text("save_strategy") == "steps";
  every_ = by_time ? options.seconds("save_every") : 0;
  last_save_ = std::chrono::steady_clock::now();
  parts_.world->run_on_rank_0([&] {
    io::remove_leftovers(parts_.output->path());
    check_free_space();
  });
  if (every_ > 0) save_by_time();
  parts_.trainer->set_callback(this);
}

/// Collective, and last in the constructor: says that checkpoints are saved by time.
void CheckpointManager::save_by_time() {
  every_ = parts_.world->max(parts_.world->rank() == 0 && every_ > 0 ? 1 : 0) > 0 ? every_ : 0;
  if (every_ <= 0) return;
  const std::string kept = std::to_string(parts_.options->optional_integer("save_total_limit").value_or(2));
  log::info("save      every " + human_time(every_) + " (--save_every), the newest " + kept +
            " stay (--save_total_limit); --save_steps N saves by steps");
}

bool CheckpointManager::time_to_save() const {
  return every_ > 0 && parts_.world->rank() == 0 &&
         std::chrono::duration<double>(std::chrono::steady_clock::now() - last_save_).count() >= every_;
}

void CheckpointManager::check_free_space() {
  const Options& options = *parts_.options;
  struct statvfs disk {};
  const std::string& path = parts_.output->path();
  if (::statvfs(path.c_str(), &disk) != 0) throw io::system_error("ask for free space at", path, errno);
  const plan::RunSpec& run = parts_.trainer->plan().spec;
  // The stop at a time limit saves optimizer states in any case.
  const std::vector<StateSpec> states = options.flag("save_only_model") && !limit_.exists()
                                            ? std::vector<StateSpec>()
                                            : parts_.trainer->plan().saved_states();
  const double needed =
      1.01 * static_cast<double>(io::state_bytes(run.model->own_params(), states,
                                                 parts_.base ? io::SavedParams::trainable : io::SavedParams::all)) +
      (1 << 20);
  const double there = static_cast<double>(disk.f_bavail) * static_cast<double>(disk.f_frsize);
  limit_.save_took(needed / 2e8);  // at 200 MB/s, until a save has been measured
  const auto model = static_cast<double>(parts_.model_bytes);
  const auto refuse = [&](const std::string& what, double bytes, const char* to_do) {
    if (there < bytes)
      throw Error(
          ExitCode::data,
          strfmt("E140 %s %s, %s are free", what.c_str(), human_bytes(bytes).c_str(), human_bytes(there).c_str()), path,
          to_do);
  };
  if (enabled_ || limit_.exists())
    refuse(model > 0 ? "a checkpoint and the final model need" : "a checkpoint needs", needed + model,
           "Free some space, choose another --output_dir, or train without --save_steps");
  refuse("the final model needs", model, "Free some space, choose another --output_dir, or --save_model false");
  if (every_ <= 0 || there >= needed + model) return;
  log::warn(34, strfmt("%s has no space for checkpoints (%s, and %s for the final model; %s are free): none is saved "
                       "every %s",
                       path.c_str(), human_bytes(needed).c_str(), human_bytes(model).c_str(),
                       human_bytes(there).c_str(), human_time(every_).c_str()));
  every_ = 0;
}

shard::ControlFlags CheckpointManager::flags() {
  if (pass_begin_) {
    const auto now = std::chrono::steady_clock::now();
    limit_.pass_took(std::chrono::duration<double>(now - *pass_begin_).count());
    pass_begin_ = now;
  }
  save_requested_ = take_save_request() || save_requested_;
  return {.stop = stop_signal() != 0 || limit_.expires_soon() ? 1 : 0,
          .save = save_requested_ || time_to_save() ? 1 : 0,
          .saved = saving_ && saving_->finished() ? 1 : 0};
}

void CheckpointManager::before_update(int unit) {
  if (saving_) saving_->before_update(unit);
}

bool CheckpointManager::due(std::int64_t step, bool epoch_ends) const {
  if (!enabled_) return false;
  if (parts_.options->text("save_strategy") == "epoch") return epoch_ends;
  return step % save_steps_ == 0;
}

bool CheckpointManager::after_step(const train::StepReport& report, const Progress& progress, bool epoch_ends) {
  limit_.step_took(report.seconds);
  must_stop_ = report.flags.stop > 0;
  if (saving_ && report.flags.saved == parts_.world->size())
    commit(must_stop_ ? IfFailed::save_again : IfFailed::obey_option);
  if (must_stop_) note_stop();
  if (report.flags.save > 0) save_requested_ = false;
  if (must_stop_ || report.flags.save > 0 || due(progress.step, epoch_ends))
    save(progress, must_stop_ || !parts_.options->flag("async_save") ? SaveMode::blocking : SaveMode::async);
  return must_stop_;
}

/// Collective.
void CheckpointManager::note_stop() {
  const auto signal = static_cast<int>(parts_.world->max(stop_signal()));
  stop_reason_ = signal != 0 ? signal_name(signal) : "time limit (" + limit_.source() + ")";
}

void CheckpointManager::stop(const Progress& progress) {
  must_stop_ = true;
  note_stop();
  if (saving_) commit(IfFailed::save_again);
  if (progress.step > 0 && saved_step_ != progress.step) save(progress, SaveMode::blocking);
}

std::string CheckpointManager::keep(const Progress& progress) {
  must_stop_ = true;  // a failure is thrown
  if (saved_step_ != progress.step) save(progress, SaveMode::blocking);
  return parts_.output->file(io::checkpoint_name(progress.step));
}

void CheckpointManager::finish(const Progress& progress) {
  if (saving_) commit();
  if (enabled_ && saved_step_ != progress.step) save(progress, SaveMode::blocking);
}

/// The best checkpoint once that of `step` is on disk.
std::optional<BestCheckpoint> CheckpointManager::best_with(std::int64_t step) const {
  if (!metric_ || evaluated_step_ != step || !is_better(*metric_, evaluated_value_, best_)) return best_;
  return BestCheckpoint{*metric_, evaluated_value_, step, parts_.output->file(io::checkpoint_name(step)),
                        parts_.data.validation};
}

void CheckpointManager::evaluated(std::int64_t step, double value) {
  evaluated_step_ = step;
  evaluated_value_ = value;
  const bool here = saved_step_ == step;
  if (!here && (parts_.resumed_from.empty() || parts_.resumed_step != step)) return;
  const std::optional<BestCheckpoint> best = best_with(step);
  if (!best || best->step != step || (best_ && best_->step == step)) return;
  best_ = best;
  if (here) record_best();
  else best_->path = parts_.resumed_from;
}

/// Collective: writes into the manifest of the last step's checkpoint, which is on disk, that it is the best one.
void CheckpointManager::record_best() {
  try {
    parts_.world->run_on_rank_0([&] {
      parts_.output->check_owner();
      io::Manifest manifest = io::read_manifest(best_->path);
      manifest.training = with_best(manifest.training, *best_);
      manifest.run_metadata = with_best_path(manifest.run_metadata, best_->path);
      io::replace_manifest(best_->path, manifest);
      retention_.verified(best_->path, true);  // the resume has read all of it
    });
  } catch (const Error& error) {
    if (error.code() != ExitCode::data || io::is_taken(error) || parts_.options->text("on_save_error") == "stop") throw;
    if (parts_.world->rank() == 0)
      log::warn(27, io::checkpoint_name(best_->step) + " does not record that it is the best one: " + error.line());
  }
}

std::string CheckpointManager::run_metadata(const std::optional<BestCheckpoint>& best) const {
  nlohmann::ordered_json json = nlohmann::ordered_json::parse(parts_.run);
  char text[32];
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  ::gmtime_r(&now, &parts);
  std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &parts);
  json["saved_at"] = text;
  const std::string metadata = json.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
  return best ? with_best_path(metadata, best->path) : metadata;
}

void CheckpointManager::save(const Progress& progress, SaveMode mode) {
  if (saving_) commit(must_stop_ ? IfFailed::save_again : IfFailed::obey_option);  // one at a time
  last_save_ = std::chrono::steady_clock::now();
  const Options& options = *parts_.options;
  train::Trainer& trainer = *parts_.trainer;
  io::SaveRequest request;
  request.directory = saving_path_ = parts_.output->file(io::checkpoint_name(progress.step));
  request.step = saving_step_ = progress.step;
  request.params = trainer.plan().spec.model->own_params();
  request.layout = &trainer.plan().layout;
  // What a stop saves is there to continue from.
  saving_all_ = !options.flag("save_only_model") || !stop_reason_.empty();
  if (saving_all_) trainer.collect_residuals();
  request.state = trainer.state();
  if (!saving_all_) request.state.states.clear();
  request.base = parts_.base;
  request.file_bytes = options.bytes("checkpoint_file_size");
  request.alignment = options.bytes("checkpoint_alignment");
  request.io = options.text("checkpoint_io") == "mpio" ? io::CheckpointIo::mpio : io::CheckpointIo::direct;
  request.auxiliary_files = parts_.auxiliary_files;
  request.check_owner = [this] { parts_.output->check_owner(); };
  saving_best_ = best_with(progress.step);
  Progress recorded = progress;
  recorded.best = saving_best_;
  request.training = training_text(recorded, parts_.data, options);
  request.run_metadata = run_metadata(saving_best_);
  if (mode == SaveMode::async) {
    request.snapshot = trainer.slot_memory({SlotUse::snapshot});
    request.threads = 1;
    request.compare_replicas = false;  // training would wait for it
  }
  try {
    saving_ = std::make_unique<io::CheckpointSave>(*parts_.world, request);
  } catch (const Error& error) { return failed(error); }
  if (mode == SaveMode::blocking) commit();
}

void CheckpointManager::commit(IfFailed next) {
  io::SaveReport report;
  try {
    report = saving_->commit();
  } catch (const Error& error) {
    saving_.reset();
    return failed(error, next);
  }
  saving_.reset();
  saved_step_ = saving_step_;
  saved_all_ = saving_all_;
  set_last_checkpoint(saving_path_);
  best_ = saving_best_;
  const bool is_best = best_ && best_->step == saved_step_;
  limit_.save_took(report.seconds);
  std::string size = human_bytes(report.bytes), rate = human_bytes(static_cast<double>(report.bytes) / report.seconds);
  std::erase(size, ' ');
  std::erase(rate, ' ');
  log::info(strfmt("save %s | %s in %.1fs (%s/s)%s", io::checkpoint_name(saved_step_).c_str(), size.c_str(),
                   report.seconds, rate.c_str(), parts_.options->flag("async_save") ? " | async" : "") +
            (is_best ? strfmt(" | best %s %.4f", best_->metric.name.c_str(), best_->value) : ""));
  nlohmann::ordered_json record = {{"checkpoint", saving_path_},
                                   {"global_step", saved_step_},
                                   {"save_bytes", report.bytes},
                                   {"save_seconds", report.seconds}};
  if (is_best) record["best_metric"] = best_->value;
  parts_.world->run_and_agree([&] { parts_.output->log(record); });
  retain();
}

void CheckpointManager::retain() {
  if (!parts_.options->has("save_total_limit") && every_ <= 0) return;
  try {
    parts_.world->run_on_rank_0([&] { retention_.written(saving_path_); });
    if (must_stop_) return;  // little time is left; the next run removes what is too much
    verify_old_ones();
    parts_.world->run_on_rank_0([&] { retention_.apply(parts_.output->path(), best_ ? best_->path : ""); });
  } catch (const Error& error) {
    if (error.code() != ExitCode::data || parts_.options->text("on_save_error") == "stop" || io::is_taken(error)) throw;
    if (parts_.world->rank() == 0)
      log::warn(28, "old checkpoints were not removed, training continues: " + error.line());
  }
}

/// Reads the old checkpoints that retention has to know, on all ranks.
void CheckpointManager::verify_old_ones() {
  World& world = *parts_.world;
  const std::string best = best_ ? best_->path : "";
  for (;;) {
    const std::string path = world.text_of_rank_0([&] { return retention_.unknown(parts_.output->path(), best); });
    if (path.empty()) return;
    bool good = false;
    try {
      good = io::verify_checkpoint(world, path, 1).num_damaged == 0;
    } catch (const Error& error) {
      if (error.code() != ExitCode::data) throw;
    }
    world.run_on_rank_0([&] { retention_.verified(path, good); });
  }
}

void CheckpointManager::failed(const Error& error, IfFailed next) {
  const bool again = next == IfFailed::save_again;
  if (error.code() != ExitCode::data || io::is_taken(error)) throw error;
  if (!again && (must_stop_ || parts_.options->text("on_save_error") == "stop")) throw error;
  if (parts_.world->rank() == 0)
    log::warn(27, io::checkpoint_name(saving_step_) + " was not saved, " +
                      (again ? "the last step is saved: " : "training continues: ") + error.line());
}

}  // namespace tessera::jobs
