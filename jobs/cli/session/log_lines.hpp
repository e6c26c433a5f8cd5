// SPDX-License-Identifier: Apache-2.0
#pragma once
// The lines that a run prints: start-up block, step and evaluation lines. Formats only; measures nothing.

#include <string>
#include <vector>

#include "jobs/cli/session/gemm_peak.hpp"
#include "jobs/cli/session/host_info.hpp"
#include "jobs/cli/session/resources.hpp"
#include "jobs/cli/session/setup.hpp"
#include "runtime/plan/plan.hpp"
#include "runtime/train/trainer.hpp"

namespace tessera::jobs {

struct StartUp {
  const ModelConfig* config = nullptr;
  const models::Model* model = nullptr;
  const RunData* data = nullptr;
  const plan::RunPlan* plan = nullptr;
  MemoryTable measured;
  const World* world = nullptr;
  ThreadAllocation threads;
  RunLength length;
  const ComputePeak* peak = nullptr;
  double ready_seconds = 0;
  std::uint64_t memory_limit = 0;  // of a rank
  std::string choices;             // on GPUs: how attention and GEMMs are computed
  std::string precision_source;    // which option chose the dtype, or why it is the default
  std::string reduction;           // why the program chose --reduce_gradients; "": it did not
  std::string recompute;           // what --gradient_checkpointing auto has chosen; "": nothing
  std::string output;
  std::string stage;        // the stage and the defaults that it chose; "": none
  std::string preferences;  // the loss of pairs and its reference; "": another loss
  const std::vector<ExternalKey>* external_keys = nullptr;
};
/// At most 40 lines.
[[nodiscard]] std::vector<std::string> start_up_block(const StartUp& start);

/// Warns, on the rank that finds it, if its memory is not as planned.
void warn_of_unplanned_memory(const plan::RunPlan& plan, const MemoryTable& measured);

/// "master weights and optimizer state fp32", or that the state has another type.
[[nodiscard]] std::string state_precision(const std::vector<StateSpec>& states);
/// "global 16 = micro 2 x accumulation 2 x ranks 4"; says where micro-batches are short.
[[nodiscard]] std::string batch_line(const plan::BatchPlan& batch, int row_ranks = 1);
/// " | gradients are reduced after the last micro-batch: one rank on a GPU", where the program chose it, and why.
[[nodiscard]] std::string reduction_text(const plan::BatchPlan& batch, const std::string& decided);
[[nodiscard]] std::string data_line(const char* what, const std::vector<io::DatasetFile>& files,
                                    const io::TokenStream& tokens, const io::SampleCount& count, std::int64_t length);

/// Sums over the steps since the last line.
struct Interval {
  std::int64_t steps = 0, tokens = 0, processed = 0;  // as in StepReport
  double flops = 0, seconds = 0, data_seconds = 0;
  double comm_seconds = 0, comm_of = 0;  // of the steps that timed their waits; their seconds
  std::int64_t comm_steps = 0;           // their number
  void add(const train::StepReport& report);
};
/// What a line's figures are of: tokens, pairs, labelled answers, or pairs with scores of a reward model.
enum class Figures : unsigned char { tokens, pairs, answers, rewards };
/// "tokens", …
[[nodiscard]] const char* unit_of(Figures figures);
struct StepLine {
  bool experts = false;  // show the balance loss
  bool scaled = false;   // show the loss scale
  train::StepReport report;
  Interval interval;
  std::int64_t total_steps = 0;
  std::optional<double> mfu;                   // 1 is the peak; none: unknown
  Figures figures = Figures::tokens;           // of others: report.preference, and tokens counts pairs or answers
  bool masked = false;                         // of the tokens processed some have no loss: fine-tuning
  std::uint64_t memory = 0, memory_limit = 0;  // PSS of the largest rank, and what a rank may use
  GpuMemory gpu;                               // of the largest rank; zeros: the run is on the CPU
  double elapsed = 0, remaining = 0;
};
[[nodiscard]] std::string step_line(const StepLine& line);
/// "58.0k tok/s, 20.0k with loss" without the unit: tokens processed in a second, and those with loss where some have
/// none.
[[nodiscard]] std::string token_rates(const StepLine& line);

/// What a run's end says of memory, in bytes over its ranks.
struct MemoryUse {
  struct Sum {
    std::uint64_t largest = 0, all = 0;  // rank
  };
  Sum pss, gpu;                        // gpu: 0: the run is on the CPU
  std::uint64_t arena = 0, other = 0;  // of the host, on the largest rank
  std::uint64_t card = 0, gpu_arena = 0, gpu_other = 0;
};
/// One line, or with a GPU two.
[[nodiscard]] std::vector<std::string> memory_lines(const MemoryUse& use);
/// Seconds of steps without a GPU; of these, waiting for offloaded states, and updating on the host.
struct StepShares {
  double seconds = 0, exposed = 0, updates = 0;
};
/// What took most of them: "most waits for states to move".
[[nodiscard]] std::string step_bound(const StepShares& shares);
/// `set`: the data set's name; "": all.
[[nodiscard]] std::string eval_line(std::int64_t step, std::int64_t total, const infer::EvalReport& report,
                                    const std::string& set = {}, Figures figures = Figures::tokens);
/// The metrics of pairs or labelled answers by TRL's names: "rewards/chosen", ….
[[nodiscard]] std::vector<std::pair<std::string, double>> preference_figures(const infer::PreferenceReport& report,
                                                                             Figures of);
/// What a step's record has beside loss, norm and learning rate: these, or "token_acc".
[[nodiscard]] std::vector<std::pair<std::string, double>> step_figures(const train::StepReport& report, Figures of);
/// For a terminal: bytes that are not UTF-8, and control characters except newline and tab, become '?'.
[[nodiscard]] std::string printable_text(const std::string& bytes);
/// The same of token ids that are bytes; others become '?'.
[[nodiscard]] std::string printable(const std::vector<std::int32_t>& ids);

}  // namespace tessera::jobs
