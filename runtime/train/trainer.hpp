// SPDX-License-Identifier: Apache-2.0
#pragma once
// Trainer: one training run, driven step by step by its caller. It prints nothing.

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "io/checkpoint/state.hpp"
#include "io/data/dataset.hpp"
#include "io/model/model_io.hpp"
#include "io/scratch/scratch_store.hpp"
#include "kernels/gemm_choice.hpp"
#include "models/module.hpp"
#include "runtime/comm/world.hpp"
#include "runtime/exec/executor.hpp"
#include "runtime/infer/evaluation.hpp"
#include "runtime/plan/plan.hpp"
#include "runtime/train/loss_scale.hpp"
#include "runtime/train/lr_schedule.hpp"
#include "runtime/train/optimizers.hpp"

namespace tessera::train {

struct TrainerOptions {
  plan::RunSpec run;  // topology and rank are filled from the world, states from the optimizer
  OptimizerOptions optimizer;
  LrSchedule lr;
  double max_grad_norm = 1.0;                  // 0: no clipping
  std::optional<LossScaleOptions> loss_scale;  // fp16: dynamic loss scaling
  double nll_weight = 0;                       // of pairs: PreferenceSpec::nll
  bool needs_kl = false;                       // of labelled sequences: infer::Evaluation::needs_kl
  std::uint64_t seed = 42;
  // Tests:
  Stream::Mode comm_streams = Stream::Mode::threaded;
  exec::RunTestHooks test_hooks;
};

/// One optimizer step; the same on every rank, except the seconds.
struct StepReport {
  std::int64_t step = 0;      // 1-based
  double loss = 0;            // Σ over the global batch's tokens, each times its loss weight / valid tokens
  double token_accuracy = 0;  // share of the valid tokens that have the largest logit (the first among equals)
  double aux_loss = 0;        // load-balancing loss of the experts, without coefficient, not included in `loss`
  double grad_norm = 0;       // before clipping
  double learning_rate = 0;
  std::int64_t tokens = 0;     // valid tokens of the global batch: those with loss
  std::int64_t processed = 0;  // tokens of the global batch, without padding
  std::int64_t samples = 0;
  double flops = 0;                           // model FLOPs of the global batch (Model::train_flops), without padding
  double seconds = 0;                         // of the step; of these:
  double data_seconds = 0, comm_seconds = 0;  // the compute stream waited for data; for communication
  bool times_waits = true;                    // false: comm_seconds is not known
  double move_seconds = 0;                    // without a GPU: it waited for offloaded states
  double update_seconds = 0;                  // the host updated
  io::ScratchTimes disk;                      // of this rank's scratch file, within the step
  shard::ControlFlags flags;                  // summed over the ranks' callbacks
  infer::PreferenceReport preference;         // of pairs: then `tokens` counts pairs, and token_accuracy is the share
                                              // of those whose chosen sequence has the larger reward; or of labelled
                                              // sequences, which `tokens` counts
  double loss_scale = 1;                      // of this step
  bool skipped = false;                       // a gradient overflowed: nothing was updated
};

/// How far a run is.
struct StepsDone {
  std::int64_t steps = 0;
  std::int64_t skipped = 0;      // of them, on overflow: learning rate and bias corrections do not count them
  std::int64_t states_from = 0;  // updates done when the optimizer states were zero: bias corrections count from there
};

/// Warm-up step: samples [0, count) of the sampler's order.
struct WarmupArgs {
  const io::TokenStream* tokens = nullptr;
  const io::Sampler* sampler = nullptr;
  std::int64_t count = 0;
};
/// For Trainer::choose_gemms.
struct GemmChoiceArgs {
  WarmupArgs warmup;
  std::string kept, from;  // choices of an earlier run, equal on all ranks, and their file; "": none
  kernels::RefusedChoice refused = kernels::RefusedChoice::error;
};
struct GemmChoices {
  std::size_t kept = 0, timed = 0;  // taken from args.kept; timed now
  std::string text;                 // all choices, to store
};

class Trainer {
 public:
  /// Collective. Plans, checks that all ranks have the same plan, allocates. The model must outlive the trainer.
  Trainer(World& world, const TrainerOptions& options);
  ~Trainer();

  [[nodiscard]] const plan::RunPlan& plan() const;
  [[nodiscard]] World& world();

  /// Initializes the parameters, as a function of seed, parameter name and element index alone.
  void initialize();
  /// The same of adapters alone, the others being loaded.
  void initialize_adapters();
  /// This rank's master shards, one per unit. After writing to them, all ranks call parameters_changed().
  [[nodiscard]] std::vector<io::ShardView> shards();
  /// The same of the units that only a reference model reads: frozen, in no checkpoint.
  [[nodiscard]] std::vector<io::ShardView> reference_shards();
  void parameters_changed();
  /// This rank's master shards, optimizer states, and the sum of the residuals of int8 gradients
  /// (plan().saved_states()). After loading into them: parameters_changed(), resume_at().
  [[nodiscard]] io::TrainingState state();
  /// Memory of a planned slot for its owner to fill: SlotUse::snapshot (asynchronous save). Empty if there is none.
  [[nodiscard]] std::span<std::byte> slot_memory(SlotId slot);
  /// Collective, before state() is saved: sums the residuals of int8 gradients over ranks, for the state of that name.
  void collect_residuals();
  /// Continues with the step after those done, and with the residuals in state().
  void resume_at(const StepsDone& done);
  [[nodiscard]] std::int64_t skipped_steps() const;
  /// State of the loss scaling, if there is one.
  [[nodiscard]] std::optional<LossScaleState> loss_scale() const;
  /// Continues with another run's loss scale; without loss scaling, does nothing.
  void resume_loss_scale(const LossScaleState& state);
  /// Continues with this schedule, the same on every rank, in place of TrainerOptions::lr.
  void resume_schedule(const LrSchedule& schedule);
  /// Collective, on devices, once the parameters are loaded: a step whose updates are skipped, so that all of its
  /// kernels are loaded and library plans made before step 1. Changes no state; residuals are again what the run began
  /// or resumed with.
  void warm_up(const WarmupArgs& args);
  /// Collective, on devices, before the first step: chooses the GEMM algorithms (kernels/gemm_choice.hpp). Does a
  /// warm-up step; then rank 0 times the GEMMs that args.kept has no choice for, and all ranks use its choices. Throws
  /// as kernels::apply_gemm_choices does.
  GemmChoices choose_gemms(const GemmChoiceArgs& args);
  /// Whether the steps from now on time their waits for communication: on a device that takes some microseconds of the
  /// host for each. They do unless told otherwise.
  void set_times_waits(bool times_waits);
  /// Called in the steps from now on, and its flags() in the passes of evaluate() and generate(); null: none. It must
  /// outlive them.
  void set_callback(exec::StepCallback* callback);

  /// One optimizer step on samples [first, first + count) of `sampler`'s order; count ≤ G (the last batch of an epoch
  /// may be partial). Throws Error (diverged) on every rank, before the update, with step and unit. With loss scaling
  /// such a step is skipped; the error is thrown when the lowest scale does not help.
  StepReport step(const io::TokenStream& tokens, const io::Sampler& sampler, std::int64_t first, std::int64_t count);
  /// Load-balancing losses of the last step, one per layer with experts; micro-batches weighted by their tokens.
  [[nodiscard]] std::span<const double> layer_aux_losses() const;
  /// Gradient norms of the last step, one per unit of the plan, before clipping; 0 of frozen units. Collective; on rank
  /// 0, empty elsewhere. Reads the gradients once more: for log lines, not for every step.
  [[nodiscard]] std::vector<double> unit_gradient_norms();
  /// Loss over the first max_samples samples of T in `tokens` (0: all). Collective. A stop flag ends it after a pass:
  /// infer::EvalReport::complete is false.
  infer::EvalReport evaluate(const io::TokenStream& tokens, std::int64_t max_samples = 0,
                             const infer::EvalProgress& progress = {});
  /// `prompt` and up to count new tokens; temperature 0 is greedy. Collective; the same ids on every rank. Nothing if a
  /// stop flag has ended it after a token.
  std::optional<std::vector<std::int32_t>> generate(std::span<const std::int32_t> prompt, int count, double temperature,
                                                    std::uint64_t seed);

  /// Memory of the arena and of the communicators, as the system reports it (Arena::measure). plan::compare_memory
  /// compares it with the plan.
  [[nodiscard]] MemoryTable measured_memory() const;
  /// What has been moved to and from this rank's scratch file; nothing if no state is on disk.
  [[nodiscard]] std::optional<io::ScratchTimes> disk_times() const;
  /// How that file reaches the disk; of a run with states on disk.
  [[nodiscard]] io::ScratchMedium disk_medium() const;
  /// Collectives and bytes sent since the start, of a group (given by its axes).
  [[nodiscard]] TrafficCount traffic(AxisSet axes) const;
  /// The same of exchanges of activations.
  [[nodiscard]] TrafficCount exchange_traffic(AxisSet axes) const;
  /// Records spans from now on, of at most `steps` steps; take_trace() returns them.
  void start_trace(int steps);
  [[nodiscard]] std::vector<exec::TraceSpan> take_trace();
  /// Hash of this rank's master shards and optimizer states (--hash_params_every, tests).
  [[nodiscard]] std::uint64_t state_hash() const;
  /// Tests: the unit's reduced gradient of the last step on this rank (shard_numel elements).
  [[nodiscard]] std::vector<float> reduced_gradient(int unit) const;
  /// Tests: the arena.
  [[nodiscard]] Arena& arena();

 private:
  struct Parts;
  static void end_scaled_step(Parts& parts, const StepReport& report);
  std::unique_ptr<Parts> parts_;
};

}  // namespace tessera::train
