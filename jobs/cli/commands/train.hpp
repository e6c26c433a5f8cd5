// SPDX-License-Identifier: Apache-2.0
#pragma once
// A training run, top to bottom: what `tessera train` does after the command line is read.

#include <memory>

#include "io/chat/chat_template.hpp"
#include "io/model/auxiliary_files.hpp"
#include "jobs/cli/commands/commands.hpp"
#include "jobs/cli/session/checkpoint_manager.hpp"
#include "jobs/cli/session/gemm_peak.hpp"
#include "jobs/cli/session/host_info.hpp"
#include "jobs/cli/session/log_lines.hpp"
#include "jobs/cli/session/loss_trend.hpp"
#include "jobs/cli/session/prompts.hpp"
#include "jobs/cli/session/run_directory.hpp"
#include "jobs/cli/session/setup.hpp"
#include "jobs/cli/session/trainable.hpp"

namespace tessera::jobs {

class TrainRun {
 public:
  /// Collective.
  TrainRun(const Call& call, World& world);
  /// Collective. Throws the same Error on every rank; an error that one rank alone meets ends in World::abort.
  int run();

 private:
  void check_setup();
  void prepare();    // model, data, batch: every refusal that needs no memory
  void open_data();  // and what the plan takes from it
  void choose_save_dtype();
  void choose_recompute();
  void check_memory();  // the plan against what this machine can give
  void lock();          // keeps other runs out of --output_dir
  void start();         // trainer, parameters, output directory
  void read_parameters();
  void read_base(const std::string& directory);  // its weights, and with --save_only_trainable their checksum
  [[nodiscard]] io::BaseModel frozen_checksum() const;
  /// Absolute path of the base model; "" without one.
  [[nodiscard]] std::string base_path() const;
  /// Loads the first candidate that can be loaded. False: start from the beginning.
  [[nodiscard]] bool resume();
  void read_candidate(const io::CheckpointReader& reader, const std::string& path);  // progress, schedule, differences
  void load_candidate(const io::CheckpointReader& reader, const std::string& path);
  void say_what_differs(const std::string& path) const;
  [[nodiscard]] std::uint64_t final_model_bytes() const;
  void save_checkpoints();  // from now on, where asked for
  void announce();          // start-up block, args.json, run.json, the resume record
  /// False: stopped early, with a checkpoint.
  [[nodiscard]] bool loop();
  train::StepReport one_step();
  void log_step(const train::StepReport& report);
  void warn_of_loss() const;               // after the last step: if it did not fall
  void log_unit_norms(std::int64_t step);  // the event file's gradient norm of each unit
  void write_trace();                      // collective
  void keep_report_trace();
  [[nodiscard]] std::string trace_text(const std::vector<exec::TraceSpan>& spans) const;
  [[nodiscard]] bool evaluates_after(std::int64_t done) const;
  /// Collective. Records its figures, unless it was cut short: then the run must stop.
  infer::EvalReport evaluate(std::int64_t done);
  [[nodiscard]] infer::EvalReport evaluate(const ValidationSet& set);
  void require_metric() const;
  [[nodiscard]] Figures figures_of_run() const;
  void load_best();
  /// What follows the last step. False: stopped early, with a checkpoint.
  [[nodiscard]] bool finish();
  bool stop_now();  // outside of the steps; returns false
  void write_final_model(const std::string& directory);
  void rescue_model(const Error& failed);  // throws
  void print_baseline(const infer::EvalReport& last);
  void print_done(double seconds) const;
  [[nodiscard]] int stopped_early();
  void read_chat();
  void read_sample_prompts();
  void check_prompt(const char* option, const Prompt& prompt) const;
  [[nodiscard]] std::vector<std::int32_t> ids_of(const Prompt& prompt) const;  // tokenized as the data are
  [[nodiscard]] std::optional<std::string> continued(const Prompt& prompt);
  [[nodiscard]] bool sample(std::int64_t done);  // false: cut short, and not recorded
  void memory_line();
  void disk_line();
  [[nodiscard]] std::string run_json() const;
  [[nodiscard]] std::string run_json_with_memory() const;
  void write_report() noexcept;  // report.html, on rank 0; a warning (W052) if it cannot be written
  [[nodiscard]] std::optional<StepRange> traced_steps() const;
  [[nodiscard]] double elapsed() const;

  const Call& call_;
  Options options_;  // as given, with what a resume keeps of its checkpoint and the precision of decide_precision
  World& world_;
  ModelConfig config_;
  models::Model model_;
  RunData data_;
  RunLength length_;
  ThreadAllocation threads_;
  train::TrainerOptions trainer_options_;
  std::uint64_t memory_limit_ = 0, baseline_pss_ = 0;
  ComputePeak peak_;
  std::unique_ptr<io::Sampler> sampler_;
  std::unique_ptr<train::Trainer> trainer_;
  std::unique_ptr<io::DirectoryLock> lock_;  // rank 0 only
  std::unique_ptr<RunDirectory> output_;
  std::unique_ptr<CheckpointManager> checkpoint_manager_;
  DataIdentity data_identity_;
  std::int64_t max_length_ = 0;  // T before it is fitted to the data
  Progress progress_;
  std::optional<BestMetric> best_metric_;
  std::vector<Prompt> prompts_;                   // --sample_prompt, then those of --prompt_file
  std::optional<std::int32_t> sample_end_;        // the id that ends a document, if there is a tokenizer
  std::optional<io::ChatTemplate> chat_;          // of conversations that were tokenized in this run
  std::string system_;                            // --system, for samples
  std::optional<std::int32_t> end_of_turn_;       // what it prints behind an answer
  std::vector<io::AuxiliaryFile> changed_files_;  // of saved models and checkpoints: generation_config.json
  DType save_dtype_ = DType::f32;
  std::optional<infer::EvalReport> last_evaluation_;  // after the last step
  StepShares step_shares_;                            // of this rank's steps
  io::ScratchTimes disk_in_steps_;                    // likewise
  double train_seconds_ = 0;                          // until then
  std::int64_t first_step_ = 0;                       // steps done before this process
  std::string resumed_from_;                          // a checkpoint; "" for a new run
  std::vector<SettingChange> changes_;                // since that checkpoint
  std::string unknown_settings_;                      // that its checkpoint does not record
  std::string warmup_ignored_;                        // the text of W063; "": there is none
  std::string lost_best_;                             // the text of W032; "": there is none
  FrozenChange frozen_change_;                        // likewise
  std::optional<io::BaseModel> base_;                 // --save_only_trainable: what checkpoints leave out
  std::string base_directory_;                        // and where it is
  std::optional<std::uint32_t> copied_crc_;           // of a text part: of the tensors that the saved model copies
  std::vector<std::string> resume_lines_;
  std::string kernel_choices_;  // on GPUs
  std::string recompute_line_;  // with --gradient_checkpointing auto
  std::string run_directory_;   // to continue in; "": a new one
  std::vector<Candidate> candidates_;
  std::vector<std::string> hosts_;  // rank 0 only
  std::chrono::steady_clock::time_point loop_started_;
  Interval interval_;
  double loss_sum_ = 0;
  LossTrend loss_trend_;
  std::int64_t tokens_ = 0, processed_ = 0, logged_ = 0;
};

}  // namespace tessera::jobs
