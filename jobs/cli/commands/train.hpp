#pragma once
// A training run, top to bottom: what `tessera train` does after the command line is read.

#include <memory>
#include <optional>

#include "jobs/cli/commands/commands.hpp"
#include "jobs/cli/session/checkpoint_manager.hpp"
#include "jobs/cli/session/host_info.hpp"
#include "jobs/cli/session/log_lines.hpp"
#include "jobs/cli/session/run_directory.hpp"
#include "jobs/cli/session/setup.hpp"

namespace tessera::jobs {

class TrainRun {
 public:
  TrainRun(const Call& call, World& world) : call_(call), options_(call.options()), world_(world) {}
  /// Collective. Throws Error on every rank alike; what one rank alone meets ends in World::abort.
  int run();

 private:
  void prepare();       // model, data, batch: everything that can be refused without memory
  void check_memory();  // the plan against what this machine can give
  void lock();          // the output directory is this run's alone
  void start();         // trainer, parameters, output directory
  void read_parameters();
  /// The first of the candidates that loads; goes on in its directory. False: start afresh.
  [[nodiscard]] bool resume();
  void save_checkpoints();  // from now on, as asked for
  void announce();          // start-up block, args.json, run.json
  /// False: stopped early, with a checkpoint.
  [[nodiscard]] bool loop();
  train::StepReport one_step();
  void log_step(const train::StepReport& report);
  void trace(std::int64_t done);
  train::EvalReport evaluate(std::int64_t done);
  void finish();
  [[nodiscard]] int stopped_early();
  void sample();
  [[nodiscard]] std::vector<std::int32_t> prompt_ids() const;  // of --sample_prompt, as the data were tokenised
  void memory_line();
  [[nodiscard]] std::string run_json() const;
  [[nodiscard]] double elapsed() const;

  const Call& call_;
  const Options& options_;
  World& world_;
  ModelConfig config_;
  models::Model model_;
  RunData data_;
  RunLength length_;
  ThreadAllocation threads_;
  train::TrainerOptions trainer_options_;
  std::uint64_t memory_limit_ = 0, baseline_pss_ = 0;
  double sgemm_gflops_ = 0;
  std::unique_ptr<io::Sampler> sampler_;
  std::unique_ptr<train::Trainer> trainer_;
  std::unique_ptr<io::DirectoryLock> lock_;  // rank 0 only
  std::unique_ptr<RunDirectory> output_;
  std::unique_ptr<CheckpointManager> checkpoint_manager_;
  DataIdentity data_identity_;
  Progress progress_;
  std::int64_t first_step_ = 0;  // steps done before this process
  std::string resumed_;          // the line that says so
  std::string kernel_choices_;   // of a run on devices
  std::string run_directory_;    // to go on in
  std::vector<Candidate> candidates_;
  std::vector<std::string> hosts_;  // rank 0 only
  std::chrono::steady_clock::time_point loop_started_;
  Interval interval_;
  double loss_sum_ = 0;
  std::int64_t tokens_ = 0, logged_ = 0;
};

}  // namespace tessera::jobs
