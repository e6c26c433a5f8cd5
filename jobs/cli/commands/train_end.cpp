// SPDX-License-Identifier: Apache-2.0
// The end of a training run: the last evaluation, the model, or the state of a run that must stop.
#include <algorithm>
#include <filesystem>

#include "io/file/file.hpp"
#include "io/model/model_part.hpp"
#include "jobs/cli/commands/train.hpp"
#include "jobs/cli/session/lora.hpp"
#include "models/wrappers.hpp"
#include "runtime/base/log.hpp"

namespace tessera::jobs {

void TrainRun::write_final_model(const std::string& directory) {
  const std::vector<io::ShardView> shards = trainer_->shards();
  if (model_.lora)
    write_adapter(world_, directory, base_path(),
                  {.auxiliary_source = config_.directory, .auxiliary_files = changed_files_},
                  {&model_, &trainer_->plan().layout, shards});
  if (model_.lora && !options_.flag("from_scratch")) return;
  const io::WriteModelOptions how{.max_shard_bytes = options_.bytes("max_shard_size"),
                                  .auxiliary_source = config_.directory,
                                  .dtype = save_dtype_,
                                  .auxiliary_files = changed_files_};
  const std::string config = io::config_for_dtype(config_.text, save_dtype_);
  const shard::ShardLayout& layout = trainer_->plan().layout;
  if (models::is_text_part(model_.family))
    io::write_model_part(
        world_, directory, config, model_.own_params(), layout, shards, how,
        {config_.directory, [&](const std::string& name) { return models::tensor_use(model_, name); }});
  else io::write_model(world_, directory, config, model_.own_params(), layout, shards, how);
  log::info(strfmt("model     saved in %s%s | ", name_of(save_dtype_),
                   options_.given("save_dtype") ? "" : " (--save_dtype auto)") +
            directory);
}

/// The model could not be written: keeps it as a checkpoint, else in the current directory, and throws what has failed
/// and where the model is.
void TrainRun::rescue_model(const Error& failed) {
  std::string kept, how;
  if (!options_.flag("load_best_model_at_end")) {  // then the trainer no longer has the last step's state
    try {
      kept = checkpoint_manager_->keep(progress_);
      how = "tessera convert --in " + kept + " --to hf --out DIR makes a model of it";
    } catch (const Error& error) {
      if (error.code() != ExitCode::data) throw;
    }
  }
  if (kept.empty()) {
    const std::string name =
        std::filesystem::path(output_->path() + "/.").lexically_normal().parent_path().filename().string();
    const std::string elsewhere = world_.broadcast((std::filesystem::current_path() / ("model-of-" + name)).string());
    try {
      world_.run_on_rank_0([&] { io::make_directories(elsewhere); });
      write_final_model(elsewhere);
      kept = elsewhere;
      how = "Move it";
    } catch (const Error& error) {
      if (error.code() != ExitCode::data) throw;
      world_.run_on_rank_0([&] {
        std::error_code ignored;
        std::filesystem::remove(elsewhere, ignored);  // if it is empty
      });
    }
  }
  if (kept.empty()) throw failed;
  throw Error(ExitCode::data, "the model was not written: " + failed.line(), "it is kept in " + kept, how);
}

bool TrainRun::finish() {
  if (progress_.step == first_step_) train_seconds_ = elapsed();
  if (!last_evaluation_ && evaluates_after(progress_.step)) {
    const infer::EvalReport evaluation = evaluate(progress_.step);
    if (!evaluation.complete) return stop_now();
    last_evaluation_ = evaluation;
  }
  memory_line();
  disk_line();
  if (options_.flag("load_best_model_at_end")) load_best();
  // Once the best checkpoint's weights are in memory the last step can no longer be saved.
  const bool can_stop = !options_.flag("load_best_model_at_end") || checkpoint_manager_->has(progress_.step);
  if (!sample(progress_.step) && can_stop) return stop_now();
  if (options_.flag("save_model")) {
    world_.run_on_rank_0([&] { output_->check_owner(); });
    try {
      write_final_model(output_->path());
    } catch (const Error& failed) {
      if (failed.code() != ExitCode::data) throw;
      rescue_model(failed);
    }
  }
  // After the model is written: it reads all training data, and an id beyond the vocabulary is an error.
  if (last_evaluation_ && options_.text("baseline") == "bigram") print_baseline(*last_evaluation_);
  world_.run_on_rank_0([&] { output_->status("completed"); });
  write_report();
  print_done(train_seconds_);
  return true;
}

void TrainRun::print_done(double seconds) const {
  const std::string steps = strfmt("done %ld/%ld | ", progress_.step, length_.total_steps);
  const std::string path = " | " + output_->path();
  if (progress_.step == first_step_)
    return log::info(steps + "no step was left: the checkpoint is the run's end" + path);
  const bool masked = data_.train->masked();
  const auto processed = static_cast<double>(masked ? processed_ : tokens_);
  const std::string unit =
      figures_of_run() == Figures::tokens ? " with loss" : std::string(" ") + unit_of(figures_of_run());
  const std::string with_loss = masked ? ", " + human_count(static_cast<double>(tokens_)) + unit : "";
  log::info(steps +
            (tokens_ > 0 ? strfmt("train_loss %.4f", loss_sum_ / static_cast<double>(tokens_))
                         : "every step overflowed and was skipped") +
            strfmt(" | %s tokens%s | %s | %s tok/s", human_count(processed).c_str(), with_loss.c_str(),
                   human_time(seconds).c_str(), human_count(processed / std::max(seconds, 1e-12)).c_str()) +
            path);
}

bool TrainRun::stop_now() {
  checkpoint_manager_->stop(progress_);
  return false;
}

int TrainRun::stopped_early() {
  world_.run_on_rank_0([&] { output_->status("preempted"); });
  write_report();
  const char* kept = progress_.step == 0                 ? "no step was done, there is nothing to save: start it again"
                     : checkpoint_manager_->can_resume() ? "the checkpoint is saved: continue with "
                                                           "--resume_from_checkpoint auto"
                                                         : "the checkpoint has the model alone (--save_only_model): it "
                                                           "cannot be resumed, start a run from it with --model";
  log::info(strfmt("stopped %ld/%ld by %s | %s | %s", progress_.step, length_.total_steps,
                   checkpoint_manager_->stop_reason().c_str(), kept, output_->path().c_str()));
  return static_cast<int>(ExitCode::preempted);
}

}  // namespace tessera::jobs
