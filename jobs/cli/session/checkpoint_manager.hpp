#pragma once
// CheckpointManager of a run: when one is due, saving it (beside the steps, where asked), which ones
// stay, and when the run has to stop.

#include <memory>
#include <optional>
#include <string>

#include "io/checkpoint/checkpoint.hpp"
#include "io/checkpoint/directory.hpp"
#include "jobs/cli/session/preemption.hpp"
#include "jobs/cli/session/resume.hpp"
#include "jobs/cli/session/run_directory.hpp"
#include "runtime/train/trainer.hpp"

namespace tessera::jobs {

class CheckpointManager final : public train::StepCallback {
 public:
  struct Parts {
    const Options* options = nullptr;
    World* world = nullptr;
    train::Trainer* trainer = nullptr;
    RunDirectory* output = nullptr;
    std::vector<io::AuxiliaryFile> auxiliary_files;  // rank 0's
    DataIdentity data;
    std::int64_t saved_step = -1;  // what is in this directory already: the step that was resumed from
    std::string run;               // JSON object for the manifest's may_differ
    std::chrono::steady_clock::time_point started;
  };
  /// Collective. Checks that a checkpoint can be saved, where saving is asked for: throws Error (data, E140) on every
  /// rank alike if there is not room for one.
  explicit CheckpointManager(Parts parts);

  shard::ControlFlags flags() override;
  void before_update(int unit) override;

  /// Collective, after each step. True: the run stops here, its checkpoint is on disk (exit 75). Throws Error (data) on
  /// every rank alike if a save has failed and --on_save_error is stop.
  [[nodiscard]] bool after_step(const train::StepReport& report, const Progress& progress, bool epoch_ends);
  /// Collective, after the last step: saves the end, unless it is saved, and waits for what is on its way.
  void finish(const Progress& progress);
  /// Seconds that training has waited for saves.
  [[nodiscard]] double seconds() const { return seconds_; }

 private:
  [[nodiscard]] bool due(std::int64_t step, bool epoch_ends) const;
  enum class Way : unsigned char { beside, now };
  void save(const Progress& progress, Way way);
  void commit();
  void retain();
  void failed(const Error& error);
  void check_free_space();
  [[nodiscard]] std::string run_metadata() const;

  Parts parts_;
  TimeLimit limit_;
  io::Retention retention_;
  bool enabled_ = false;  // any saving was asked for
  bool must_stop_ = false;
  std::unique_ptr<io::CheckpointSave> saving_;
  std::string saving_path_;
  std::int64_t saving_step_ = -1, saved_step_ = -1;
  double seconds_ = 0;
};

}  // namespace tessera::jobs
