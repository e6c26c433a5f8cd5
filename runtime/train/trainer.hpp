#pragma once
// Trainer: a run's parts put together, stepped from outside. No words for people here: it returns numbers.

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "io/checkpoint/state.hpp"
#include "io/data/dataset.hpp"
#include "io/model/model_io.hpp"
#include "models/module.hpp"
#include "runtime/comm/delayed.hpp"
#include "runtime/comm/world.hpp"
#include "runtime/plan/plan.hpp"
#include "runtime/train/evaluation.hpp"
#include "runtime/train/executor.hpp"
#include "runtime/train/loss_scale.hpp"
#include "runtime/train/lr_schedule.hpp"
#include "runtime/train/optimizer.hpp"

namespace tessera::train {

struct TrainerOptions {
  plan::RunSpec run;  // its topology and rank are filled from the world
  AdamWOptions adamw;
  LrSchedule lr;
  double max_grad_norm = 1.0;                  // 0: measured, not clipped
  std::optional<LossScaleOptions> loss_scale;  // fp16: scaled losses, and steps skipped on overflow
  std::uint64_t seed = 42;
  // Tests:
  Stream::Mode comm_streams = Stream::Mode::threaded;
  Delay delay;                 // a slow transport
  std::string shortened_slot;  // this slot of the arena is 64 bytes short: its canary must notice
};

/// Of one optimizer step; the same on every rank but for the seconds.
struct StepReport {
  std::int64_t step = 0;  // 1-based
  double loss = 0;        // Σ over the global batch's tokens / valid tokens
  double aux_loss = 0;    // balance loss of the experts, without its coefficient, and not in `loss`; 0 without experts
  double grad_norm = 0;   // before clipping
  double learning_rate = 0;
  std::int64_t tokens = 0;  // valid tokens of the global batch
  std::int64_t samples = 0;
  double flops =
      0;  // of the model, for the global batch (Model::train_flops); what packed documents cost, not their padding
  double seconds = 0, data_seconds = 0, comm_seconds = 0;  // whole; waiting for data; compute waiting for communication
  shard::ControlFlags flags;                               // of all ranks' guests
  double loss_scale = 1;                                   // that the step was taken with
  bool skipped = false;                                    // a gradient overflowed: nothing was updated
};

/// Of a step that is rehearsed: samples [0, count) of the order.
struct WarmupArgs {
  const io::TokenStream* tokens = nullptr;
  const io::Sampler* sampler = nullptr;
  std::int64_t count = 0;
};
/// For Trainer::choose_gemms.
struct GemmChoiceArgs {
  WarmupArgs warmup;
  std::string kept, from;  // choices of an earlier run, alike on every rank, and where they are from; "": none
};
struct GemmChoices {
  std::size_t kept = 0, timed = 0;  // in args.kept; now
  std::string text;                 // all of them, to keep
};

class Trainer {
 public:
  /// Collective. Plans, agrees with the peers on the plan, allocates the arena. The model must outlive the trainer.
  Trainer(World& world, const TrainerOptions& options);
  ~Trainer();

  [[nodiscard]] const plan::RunPlan& plan() const;
  [[nodiscard]] World& world();

  /// Fresh parameters: a function of (seed, name, element) alone.
  void initialise();
  /// This rank's master shards, one per unit, to read into or write from. Collective fences around use are the
  /// caller's: call parameters_changed() after writing.
  [[nodiscard]] std::vector<io::ShardView> shards();
  void parameters_changed();
  /// False where another replica holds the same bytes and writes them.
  [[nodiscard]] bool writes_shards() const;

  /// This rank's master shards and moments, to save from or to load into (then parameters_changed(), resume_at()).
  [[nodiscard]] std::vector<io::StateView> state();
  /// This rank's place among the ranks that hold the same shards.
  [[nodiscard]] int replica() const;
  [[nodiscard]] int num_replicas() const;
  /// Planned room that is its owner's to fill: plan::snapshot_name, of a save in the background; plan::index_name, of
  /// packed samples. Empty if there is none.
  [[nodiscard]] std::span<std::byte> room(const char* slot);
  /// The next step is steps_done + 1; of those, `skipped` updated nothing: learning rate and bias
  /// corrections follow from the others.
  void resume_at(std::int64_t steps_done, std::int64_t skipped = 0);
  [[nodiscard]] std::int64_t skipped_steps() const;
  /// Of an fp16 run; none otherwise.
  [[nodiscard]] std::optional<LossScaleState> loss_scale() const;
  /// Goes on with another run's; without effect where losses are not scaled.
  void resume_loss_scale(const LossScaleState& state);
  /// Collective, on devices, once the parameters are there: a step without its decision and update. The state, and what
  /// the next step finds, stays as it is; kernels and descriptions that are made at their first call are there
  /// afterwards.
  void warm_up(const WarmupArgs& args);
  /// Collective, on devices, before the first step: chooses the algorithms of a step's products
  /// (kernels/gemm_choice.hpp). A step is rehearsed; rank 0 times what args.kept has no choice for, on the memory of
  /// the warmup, and all ranks take what it chose. Throws as kernels::apply_gemm_choices does.
  GemmChoices choose_gemms(const GemmChoiceArgs& args);
  /// From the next step on; null: nobody. It must outlive the steps.
  void set_callback(StepCallback* callback);

  /// One optimizer step on samples [first, first + count) of `sampler`'s order; count ≤ G (a last partial batch).
  /// Throws Error (diverged) on every rank alike, before the update, naming step and unit; with scaled losses such a
  /// step is skipped, and the error comes when no lower scale helps.
  StepReport step(const io::TokenStream& tokens, const io::Sampler& sampler, std::int64_t first, std::int64_t count);
  /// Balance losses of the last step, one of each layer with experts; each micro-batch counts by its tokens.
  [[nodiscard]] std::span<const double> layer_aux_losses() const;
  /// Loss over the first max_samples samples of T in `tokens` (0: all). Collective.
  EvalReport evaluate(const io::TokenStream& tokens, std::int64_t max_samples = 0);
  /// `prompt` and up to count tokens that continue it; temperature 0 is greedy. Collective; the same ids on every rank.
  std::vector<std::int32_t> generate(std::span<const std::int32_t> prompt, int count, double temperature,
                                     std::uint64_t seed);

  /// Bytes of the arena really allocated here, by the plan's categories; equal to plan().costs.memory.
  [[nodiscard]] const std::size_t* measured_memory() const;
  /// Collectives and bytes sent since the start, per axis.
  [[nodiscard]] TrafficCount traffic(Axis axis) const;
  /// Records spans from now on (allocates up front for `steps` steps); trace() takes them.
  void start_trace(int steps);
  [[nodiscard]] std::vector<TraceSpan> take_trace();
  /// Hash of this rank's master shards and moments (tests, --hash_params_every).
  [[nodiscard]] std::uint64_t state_hash() const;
  /// Tests: the unit's reduced gradient of the last step on this rank (shard_numel elements).
  [[nodiscard]] std::vector<float> reduced_gradient(int unit) const;
  /// The arena (tests paint it and ask what was touched).
  [[nodiscard]] Arena& arena();
  /// Tests: canaries between the arena's slots are whole; names the first slot that was overrun, or "".
  [[nodiscard]] std::string broken_canary() const;

 private:
  struct Parts;
  static void end_scaled_step(Parts& parts, const StepReport& report);
  std::unique_ptr<Parts> parts_;
};

}  // namespace tessera::train
