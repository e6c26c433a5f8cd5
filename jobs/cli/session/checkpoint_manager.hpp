// SPDX-License-Identifier: Apache-2.0
#pragma once
// Saves a run's checkpoints when they are due, asynchronously with --async_save; deletes old ones; says when the run
// stops.

#include <memory>
#include <string>

#include "io/checkpoint/checkpoint.hpp"
#include "io/checkpoint/directory.hpp"
#include "jobs/cli/session/resume.hpp"
#include "jobs/cli/session/run_directory.hpp"
#include "jobs/cli/session/time_limit.hpp"
#include "runtime/train/trainer.hpp"

namespace tessera::jobs {

class CheckpointManager final : public exec::StepCallback {
 public:
  struct Parts {
    const Options* options = nullptr;
    World* world = nullptr;
    train::Trainer* trainer = nullptr;
    RunDirectory* output = nullptr;
    std::vector<io::AuxiliaryFile> auxiliary_files;  // rank 0's
    DataIdentity data;
    std::optional<io::BaseModel> base;   // --save_only_trainable
    std::optional<BestCheckpoint> best;  // --metric_for_best_model: of the run that is resumed
    std::int64_t saved_step = -1;        // the step resumed from, if its checkpoint is in this directory
    std::string resumed_from;            // the checkpoint of resumed_step, in any directory; "": none
    std::int64_t resumed_step = -1;
    std::int64_t total_steps = 0;   // of which --save_steps may be a share
    std::uint64_t model_bytes = 0;  // that the final model will take
    std::string run;                // JSON object for the manifest's run metadata
    std::chrono::steady_clock::time_point started;
  };
  /// Collective. Throws Error (data, E140) on every rank if the disk has no space for the final model, or for a
  /// checkpoint that was asked for. Without that space there are no saves by --save_every: a warning (W034) says so.
  /// Throws Error (usage) if --load_best_model_at_end would have evaluations without a checkpoint.
  explicit CheckpointManager(Parts parts);

  shard::ControlFlags flags() override;
  void before_update(int unit) override;

  /// Collective: the evaluation at `step` gave --metric_for_best_model this value; called before after_step of that
  /// step. If a checkpoint of the step is then saved, it is the best one if the value is. So is one that is on disk
  /// already (its evaluation was cut short, and the resumed run has done it): in this directory, its manifest records
  /// it. Throws Error (data) on every rank if that fails and --on_save_error is stop.
  void evaluated(std::int64_t step, double value);
  /// The best checkpoint on disk. None: no checkpoint was saved at an evaluated step.
  [[nodiscard]] const std::optional<BestCheckpoint>& best() const { return best_; }

  /// Collective, after each step. True: the run stops here, and its checkpoint is on disk (exit 75). Throws Error
  /// (data) on every rank if a save has failed and --on_save_error is stop.
  [[nodiscard]] bool after_step(const train::StepReport& report, const Progress& progress, bool epoch_ends);
  /// Collective: the run stops after its last step, or before its first one. Saves the step's checkpoint if it is not
  /// on disk; before step 1 there is nothing to save.
  void stop(const Progress& progress);
  /// True if the step's checkpoint is the last one saved.
  [[nodiscard]] bool has(std::int64_t step) const { return saved_step_ == step; }
  /// Whether the last checkpoint has optimizer states: one of --save_only_model has not, unless a stop saved it.
  [[nodiscard]] bool can_resume() const { return saved_all_; }
  /// "SIGTERM" or "time limit (--time_limit 8s)", once after_step has returned true, or after stop().
  [[nodiscard]] const std::string& stop_reason() const { return stop_reason_; }
  /// Around an evaluation or samples: the time between two calls of flags() is then that of a pass.
  void begin_passes() { pass_begin_ = std::chrono::steady_clock::now(); }
  void end_passes() { pass_begin_.reset(); }
  /// Collective, after the last step: finishes an asynchronous save, then saves the last step if it is not saved.
  void finish(const Progress& progress);
  /// Collective, after finish(): the checkpoint of the last step, saved now if it is not on disk. Throws Error (data)
  /// on every rank if that fails.
  [[nodiscard]] std::string keep(const Progress& progress);

 private:
  [[nodiscard]] bool due(std::int64_t step, bool epoch_ends) const;
  enum class SaveMode : unsigned char { async, blocking };
  void save(const Progress& progress, SaveMode mode);
  enum class IfFailed : unsigned char { obey_option, save_again };
  void commit(IfFailed next = IfFailed::obey_option);
  void note_stop();
  void retain();
  void verify_old_ones();
  void failed(const Error& error, IfFailed next = IfFailed::obey_option);
  void check_free_space();
  void save_by_time();
  [[nodiscard]] bool time_to_save() const;
  void record_best();
  [[nodiscard]] std::optional<BestCheckpoint> best_with(std::int64_t step) const;
  [[nodiscard]] std::string run_metadata(const std::optional<BestCheckpoint>& best) const;

  Parts parts_;
  TimeLimit limit_;
  io::Retention retention_;
  bool enabled_ = false;                             // some checkpoint was asked for
  double every_ = 0;                                 // seconds between saves by time; 0: there are none
  std::chrono::steady_clock::time_point last_save_;  // or the start
  bool must_stop_ = false;
  bool save_requested_ = false;  // by SIGUSR2, until a step acts on it: a pass asks for the flags and does not
  std::string stop_reason_;
  std::optional<std::chrono::steady_clock::time_point> pass_begin_;
  std::unique_ptr<io::CheckpointSave> saving_;
  std::string saving_path_;
  std::int64_t saving_step_ = -1, saved_step_ = -1;
  bool saving_all_ = true, saved_all_ = true;  // optimizer states included
  std::int64_t save_steps_ = 0;                // 0: none by steps
  std::optional<BestMetric> metric_;
  std::optional<BestCheckpoint> best_, saving_best_;  // on disk; once the save in progress is
  std::int64_t evaluated_step_ = -1;
  double evaluated_value_ = 0;
};

}  // namespace tessera::jobs
