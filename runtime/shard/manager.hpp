// SPDX-License-Identifier: Apache-2.0
#pragma once
// ShardManager: sharded parameters, gradients and optimizer states, and the operations of a schedule on them, unit by
// unit. The schedule says when, the model what the parameters mean, the optimizer how they are updated.

#include <memory>
#include <span>
#include <vector>

#include "kernels/linear_cross_entropy.hpp"
#include "kernels/step.hpp"
#include "runtime/base/arena.hpp"
#include "runtime/base/exact_sum.hpp"
#include "runtime/base/tensor.hpp"
#include "runtime/comm/communicator.hpp"
#include "runtime/shard/groups.hpp"
#include "runtime/shard/layout.hpp"
#include "runtime/shard/schedule.hpp"

namespace tessera::shard {

/// This rank's shard of a unit, for the optimizer: buffers of numel elements. Blocks of a state begin at multiples of
/// their size.
struct UpdateView {
  struct ParamRange {
    int param = 0;  // index into the model's list
    std::int64_t begin = 0, length = 0;
  };
  std::vector<ParamRange> ranges;  // in order; the rest is padding
  std::int64_t numel = 0;
  float* master = nullptr;
  const float* grad = nullptr;
  std::vector<TensorView> states;  // in the order of the optimizer's StateSpecs: count(numel) values each
  Device device;                   // of all buffers: the host, if the unit is updated there
  TensorView low_precision;        // copy of the master in ScheduledUnit::param_dtype, to update as well; absent if the
                                   // gather makes it, or the types are the same
};

/// What ranks tell each other once a step, summed: how many ranks say so.
struct ControlFlags {
  std::int64_t stop = 0;   // wants to stop after this step, with a checkpoint
  std::int64_t save = 0;   // wants a checkpoint after this step
  std::int64_t saved = 0;  // its part of the asynchronous save is on disk, or has failed
  static constexpr std::size_t count = 3;
};

/// Sums over the ranks at the end of a step. Integers, so that the order of summation does not change them. The exact
/// sums carry before and after they are added over ranks (ExactSum's bound; the plan checks it).
struct StepSums {
  ExactSum norm2;  // Σ g² over this rank's shards (one replica's), before clipping
  ExactSum loss;   // Σ over tokens
  std::int64_t tokens = 0, correct = 0;
  ControlFlags flags;
  std::span<std::int64_t> extra;  // Parts::num_extra counters of the caller, or none
};

class ShardManager {
 public:
  static constexpr std::size_t num_step_counters = 2 + ControlFlags::count;  // tokens, correct, flags
  struct Parts {
    const ShardLayout* layout = nullptr;
    const Schedule* train = nullptr;  // in inference, its main schedule
    const Groups* groups = nullptr;
    std::span<const std::unique_ptr<Communicator>> communicators;  // of Groups::all
    Arena* arena = nullptr;
    int rank = 0;
    std::span<const StateSpec> states;  // of the optimizer; inference: none
    int num_extra = 0;                  // size of StepSums::extra
    Device device;                      // of the arena's slots
  };
  /// Gives the communicators their staging buffers. Everything in `parts` must outlive the manager.
  explicit ShardManager(const Parts& parts);

  /// Start of a slot of `schedule`. Looks it up: for binding, before the first step.
  [[nodiscard]] std::byte* slot(const Schedule& schedule, int slot) const;
  /// This rank's master shard of a unit: shard_numel(unit) elements of ScheduledUnit::storage_dtype.
  [[nodiscard]] TensorView shard(int unit) const;
  /// The same of a unit that is trainable: fp32.
  [[nodiscard]] float* master(int unit) const { return shard(unit).as<float>(); }
  /// This rank's shard of the unit's optimizer states, in the order of the specs; none: the unit is frozen.
  [[nodiscard]] std::span<const TensorView> states(int unit) const {
    return units_[static_cast<std::size_t>(unit)].view.states;
  }

  /// On a device, before the first operation: the stream of what the schedule has on the gather and reduce streams, and
  /// that of its replicate stream, which may be the same. A communicator works on the stream of the instruction.
  void run_on(StreamView stream, StreamView replicate);
  [[nodiscard]] Device device() const { return parts_.device; }
  [[nodiscard]] StreamView stream() const { return stream_; }

  // Error feedback (ScheduledUnit::int8).
  /// Whether residual_sum has numbers for a unit: if it is trainable, and any unit has residuals.
  [[nodiscard]] bool has_residuals(int unit) const {
    return units_[static_cast<std::size_t>(unit)].residual_sum != nullptr;
  }
  /// This rank's shard of the sum of a unit's residuals over all ranks, as collect_residuals has left it or a
  /// checkpoint: shard_numel fp32 numbers; absent if there are none.
  [[nodiscard]] TensorView residual_sum(int unit) const;
  /// Collective, between steps: sums the residuals for a checkpoint. The residuals stay.
  void collect_residuals();
  /// Residuals whose sum over ranks is what residual_sum holds: one rank has it, those of the others are zero.
  void restore_residuals();

  /// Casts this rank's master weights to their low-precision copies, after others have written the masters.
  void cast_masters();

  // The operations of a schedule. None allocates, but for small records of int8 reductions and of transfers to a disk.
  // All are collectives of the unit's groups, called in schedule order.
  /// What the slots of an instruction hold; null: it names none.
  struct SlotMemory {
    std::byte *full = nullptr, *sum = nullptr, *stage = nullptr;  // Instruction::slot, sum, stage
  };
  /// All-gathers the unit into `full`: padded_numel elements of ScheduledUnit::param_dtype. Casts separate masters
  /// first, unless the slot is resident (then the update has written the copy).
  void gather(const Instruction& instruction, const SlotMemory& memory);
  /// Sums the unsharded gradient of a micro-batch (padded_numel elements of ScheduledUnit::reduce_dtype) over the shard
  /// axes, and accumulates it (Instruction::accumulation).
  /// With last_reduce, adds the finished shard to the norm. On return `full` may be overwritten.
  void reduce_scatter(const Instruction& instruction, const SlotMemory& memory);
  /// The same over the replicate axes; of a sharded unit, of what reduce_scatter has left in the sum slot or in the
  /// accumulator (`full` is null). A thread of its own may call it for such units.
  void all_reduce(const Instruction& instruction, const SlotMemory& memory);
  /// Copies a state of a unit between its tier and a staging slot, or what an update on the host has written to the
  /// unit's shard on the device, on `stream`.
  void fetch(const Instruction& instruction, const SlotMemory& memory, StreamView stream);
  void store(const Instruction& instruction, const SlotMemory& memory, StreamView stream);
  /// An exchange of an activation over `axes`: `bytes` of `from`, the same on every rank along them. A sum takes values
  /// of `dtype`.
  struct ExchangeArgs {
    ExchangeKind kind{};
    AxisSet axes;
    CollectiveLabel label;
    std::byte *from = nullptr, *to = nullptr;
    std::size_t bytes = 0;
    DType dtype = DType::f32;
  };
  void exchange(const ExchangeArgs& args, StreamView stream);
  /// Sums `sums` over the world, with the norm that these have collected, and clears that norm. Returns the lowest unit
  /// with a non-finite gradient on any rank, or -1.
  [[nodiscard]] int norm(StepSums& sums);

  // The same on a device, whose sums stay in its memory; the host reads them later.
  /// Where forward passes add their loss.
  [[nodiscard]] kernels::LossSums* loss_sums() const;
  /// The counters that StepSums::extra has on the host.
  [[nodiscard]] std::int64_t* extra_sums() const;
  /// Where the counts of tokens and correct predictions are: in loss_sums(), or in `sums`.
  enum class Counts : unsigned char { on_device, of_host };
  /// Enqueues what norm does, with the flags (and counts) of `sums`; computes clip factor and skip decision into `step`
  /// (unless null); copies the counters to pinned memory, and clears them.
  void issue_norm(const StepSums& sums, Counts counts, kernels::StepScalars* step);
  /// Clip factor and skip decision of what issue_norm copied, for updates on the host.
  void decide(kernels::StepScalars& step) const;
  /// Reads what issue_norm copied, once the stream has passed it. Returns as norm does.
  [[nodiscard]] int read_norm(StepSums& sums) const;

  /// Number of int64 counters that norm sums.
  [[nodiscard]] static constexpr std::size_t num_norm_counters(int num_units, int num_extra) {
    return 2 * ExactSum::num_counters + num_step_counters + static_cast<std::size_t>(num_extra + num_units);
  }
  /// Of a unit with a gradient, which is complete after the unit's last reduce. The view stays the same for the run.
  [[nodiscard]] const UpdateView& update_view(int unit) const { return units_[static_cast<std::size_t>(unit)].view; }
  /// What an update works on: in the unit's staging slot, if it names one.
  [[nodiscard]] const UpdateView& update_view(const Instruction& update, const SlotMemory& memory) const;
  /// After an update on the host: copies master weights of the type of the params to where fetches read these.
  void copy_updated(int unit, const UpdateView& view) const;
  /// The reduced gradient of a unit after its last reduce: shard_numel elements.
  [[nodiscard]] const float* reduced_gradient(int unit) const { return units_[static_cast<std::size_t>(unit)].reduced; }
  /// Where that is: the host, if the unit's gradient is kept there.
  [[nodiscard]] Device gradient_device(int unit) const { return device_of(scheduled(unit).placement.grads); }
  /// Σ g² of this rank's shard of that gradient, before clipping; 0 if the unit is frozen, or another replica counts
  /// it. Reads the gradient; changes nothing that a step reads. Between steps.
  [[nodiscard]] double squared_norm(int unit);
  /// Hash of this rank's master weights and optimizer states, without padding.
  [[nodiscard]] std::uint64_t state_hash() const;

 private:
  struct Unit {
    int index = 0;                                        // of this rank's shard
    bool first_replica = true;                            // which adds the unit to the norm
    Communicator *shards = nullptr, *replicas = nullptr;  // null: groups of one rank
    std::byte* master = nullptr;
    Device device;  // of the master
    /// With an update on the host: what gathers read on the device. Null: params are offloaded.
    std::byte* shard = nullptr;
    std::byte* source = nullptr;         // on the host: what fetches of params read
    std::byte* low_precision = nullptr;  // with separate masters: this rank's interval of the resident parameter slot
    std::vector<float*> accumulators;    // in their tier
    float* reduced = nullptr;            // the finished gradient
    Device source_device;
    float *scatter_residual = nullptr, *reduce_residual = nullptr, *residual_sum = nullptr;  // null: none
    std::span<std::byte> shards_int8, replicas_int8;                                         // staging; empty: none
    UpdateView view;  // of a unit without a gradient: ranges and states alone
    std::vector<std::pair<const std::byte*, UpdateView>> staged;  // the same in each staging slot
  };
  void bind_unit(int unit);
  void bind_staged(int unit);
  void bind_int8(int unit);
  /// Where states of a tier are.
  [[nodiscard]] Device device_of(Tier tier) const;
  /// Calls `move`(what is in the tier, its device, the address in the slot, bytes) for each part of a staged update.
  void for_each_staged(int unit, std::byte* stage, const auto& move) const;
  [[nodiscard]] const ScheduledUnit& scheduled(int unit) const {
    return parts_.train->units[static_cast<std::size_t>(unit)];
  }
  void bind_norm();
  [[nodiscard]] StreamView stream_of(const Instruction& instruction) const;
  /// The communicator, whose calls work on `stream` from now on.
  [[nodiscard]] static Communicator& on(Communicator& group, StreamView stream);
  [[nodiscard]] Communicator* communicator(AxisSet axes) const;
  /// Accumulator p, in the staging slot if there is one.
  [[nodiscard]] float* accumulator(const Instruction& instruction, int p, const SlotMemory& memory) const;
  [[nodiscard]] float* target_of(const Instruction& instruction, const SlotMemory& memory) const;
  void accumulate(const Instruction& instruction, float* x, const SlotMemory& memory);
  void end_accumulation(const Instruction& instruction, const float* target);
  void bind_source(int unit, std::byte* interval);
  [[nodiscard]] CollectiveLabel label_of(const Instruction& instruction) const;
  void widen(const SourceBuffer& source, float* out, std::size_t count) const;
  void add_norm(const Instruction& instruction, const float* gradient);
  /// Copies the summed counters into `sums`. Returns as norm does.
  [[nodiscard]] int unpack(std::span<const std::int64_t> counters, StepSums& sums) const;

  Parts parts_;
  std::vector<Unit> units_;
  StreamView stream_ = host_stream, replicate_stream_ = host_stream;
  // What norm sums: norm, loss, tokens, correct, flags, extra, and a count of non-finite gradients for each unit.
  std::vector<std::int64_t> counters_;
  std::vector<std::int64_t> replicate_counters_;  // the part of the norm that the thread of the replicate stream adds
  /// On a device: what norm sums, which both streams add to; the norms of two units, one of each stream.
  std::int64_t *device_counters_ = nullptr, *unit_counters_ = nullptr;
  std::int64_t *sent_ = nullptr, *received_ = nullptr;  // pinned: this rank's counts and flags; the summed counters
};

}  // namespace tessera::shard
