#pragma once
// ShardManager: the sharded state of a run and what can be done to it, unit by unit: gather, reduce, norm, update.
// It knows where bytes lie and who owns them; not when (the schedule), not what they mean (the model), not how
// they are updated (the optimizer).

#include <span>
#include <vector>

#include "kernels/linear_cross_entropy.hpp"
#include "kernels/step.hpp"
#include "runtime/base/arena.hpp"
#include "runtime/base/exact_sum.hpp"
#include "runtime/base/tensor.hpp"
#include "runtime/comm/communicator.hpp"
#include "runtime/shard/layout.hpp"
#include "runtime/shard/schedule.hpp"

namespace tessera::shard {

/// This rank's shard of a unit, as an optimizer sees it: numel elements everywhere.
struct UpdateView {
  struct ParamRange {  // of one parameter
    int param = 0;     // index into the model's list
    std::int64_t begin = 0, length = 0;
  };
  std::vector<ParamRange> ranges;  // in order; the rest is padding
  std::int64_t numel = 0;
  float* master = nullptr;
  const float* grad = nullptr;
  float* states[2] = {nullptr, nullptr};
  Device device;  // where all of it lies
  TensorView
      copy;  // the master, rounded to the type it is gathered in; absent where gathers see to it, or nothing is rounded
};

/// What ranks tell each other once a step, as counts of ranks.
struct ControlFlags {
  std::int64_t stop = 0;   // wants to stop after this step, with a checkpoint
  std::int64_t save = 0;   // wants a checkpoint after this step
  std::int64_t saved = 0;  // its part of the save in the background is on disk, or has failed
  static constexpr std::size_t num_words = 3;
};

/// What the ranks sum at the end of a step, as integers, so that the order does not matter.
struct StepSums {
  ExactSum norm2;  // Σ g² over this rank's shards (one replica's), before clipping
  ExactSum loss;   // Σ over tokens
  std::int64_t tokens = 0, correct = 0;
  ControlFlags flags;
  std::span<std::int64_t> extra;  // Parts::num_extra integers, or none; what they count is the caller's business
};

class ShardManager {
 public:
  static constexpr std::size_t num_step_counters = 2 + ControlFlags::num_words;  // tokens, correct, flags
  struct Parts {
    const ShardLayout* layout = nullptr;
    const Schedule* train = nullptr;         // or, without gradients, a schedule of inference
    Communicator* shard_axis = nullptr;      // null: the axis has one rank
    Communicator* replicate_axis = nullptr;  // likewise
    Arena* arena = nullptr;
    int shard = 0;       // this rank's coordinate on the shard axis
    int num_states = 2;  // inference: 0
    int num_extra = 0;   // integers that norm sums besides its own
    Device device;       // where the arena's slots lie
  };
  /// Start-up; hands the communicators their staging. Everything in `parts` must outlive the manager.
  explicit ShardManager(const Parts& parts);

  /// Where a slot of `schedule` begins; for binding a schedule before it runs (looks up by name).
  [[nodiscard]] std::byte* slot(const Schedule& schedule, int slot) const;
  /// This rank's master shard of a unit: shard_numel(unit) elements of Schedule::master_dtype.
  [[nodiscard]] TensorView shard(int unit) const;
  /// The same in training: fp32.
  [[nodiscard]] float* master(int unit) const { return shard(unit).as<float>(); }
  [[nodiscard]] float* state(int unit, int which) const { return units_[static_cast<std::size_t>(unit)].states[which]; }

  /// On a device, before the first verb: the stream in whose order gather, reduce and norm work,
  /// and with them the communicators.
  void run_on(StreamView stream);
  [[nodiscard]] Device device() const { return parts_.device; }
  [[nodiscard]] StreamView stream() const { return stream_; }

  /// Rounds this rank's masters, which have been written from outside, to the copies that gathers will find.
  void cast_masters();

  // The verbs of the schedule. None allocates. gather, reduce and norm are collectives along the unit's
  // axes: called in schedule order.
  /// All-gathers the current masters of the instruction's unit into `full` (padded_numel elements of
  /// Schedule::param_dtype, to which masters are rounded: by whoever updated them where the buffer lasts, else here).
  void gather(const Instruction& instruction, std::byte* full);
  /// Reduces this micro-batch's full gradient (padded_numel elements of Schedule::reduce_dtype) over shard, then
  /// replicate axis, and folds it into what earlier micro-batches left. With last_reduce it also adds the finished
  /// shard to the norm. On return `full` may be overwritten.
  void reduce(const Instruction& instruction, std::byte* full);
  /// Sums over the world: loss, tokens, correct and flags of `sums`, and the norm gathered by reduce (reset for the
  /// next step). Returns the lowest unit with a non-finite gradient on any rank, or -1.
  [[nodiscard]] int norm(StepSums& sums);

  // The same where the sums lie on a device: they stay there, the host reads them later.
  /// Where passes add up their loss, on the device.
  [[nodiscard]] kernels::LossSums* loss_sums() const;
  /// And the integers that StepSums::extra has on the host.
  [[nodiscard]] std::int64_t* extra_sums() const;
  enum class Counts : unsigned char {
    on_device,
    of_host
  };  // tokens and correct: added up in loss_sums(), or told in `sums`
  /// Sums over the world as norm does, with the flags (and counts) of `sums`; decides `step` by them (null: nothing to
  /// decide); has the words copied to pinned memory, and clears them.
  void issue_norm(const StepSums& sums, Counts counts, kernels::StepScalars* step);
  /// What the last issue_norm left in pinned memory, once the stream has passed it. Returns as norm does.
  [[nodiscard]] int read_norm(StepSums& sums) const;

  /// 64-bit words that norm sums over the shard axis and over the replicate axis.
  [[nodiscard]] static constexpr std::size_t num_norm_counters(Axis axis, int num_units, int num_extra) {
    return ExactSum::num_words + num_step_counters + static_cast<std::size_t>(num_extra) +
           (axis == Axis::shard ? ExactSum::num_words + static_cast<std::size_t>(num_units) : 0);
  }
  /// In training: grad is complete after the unit's last reduce. Stable over the run.
  [[nodiscard]] const UpdateView& update_view(int unit) const { return units_[static_cast<std::size_t>(unit)].view; }
  /// The reduced gradient of a unit after its last reduce: shard_numel elements.
  [[nodiscard]] const float* reduced_gradient(int unit) const { return units_[static_cast<std::size_t>(unit)].reduced; }
  /// Hash of masters and optimizer states on this rank, padding left out.
  [[nodiscard]] std::uint64_t state_hash() const;

 private:
  struct Unit {
    std::byte* master = nullptr;
    std::byte* copy = nullptr;  // where the gathered buffer lasts and masters lie apart: this rank's interval of it
    float* states[2] = {nullptr, nullptr};
    std::vector<float*> partials;
    float* reduced = nullptr;  // where the finished gradient ends up
    UpdateView view;
  };
  void bind_unit(int unit);
  void bind_norm();
  void fold(const Instruction& instruction, Unit& unit, float* x, float* target);
  void widen(const SourceBuffer& terms, float* out, std::size_t count) const;
  void add_norm(int unit);
  /// Takes sums over the world out of its words.
  [[nodiscard]] int unpack(std::span<const std::int64_t> words, StepSums& sums) const;

  Parts parts_;
  std::vector<Unit> units_;
  float* scratch_ = nullptr;
  ExactSum norm2_;
  StreamView stream_ = host_stream;
  std::int64_t *device_counters_ = nullptr, *unit_counters_ = nullptr;  // on a device: as counters_; of one unit
  std::int64_t *sent_ = nullptr, *received_ = nullptr;  // pinned: counts and flags of this rank; the world's words
  std::vector<std::int64_t>
      counters_;  // norm words, loss words, tokens, correct, flags, extra, non-finite count of each unit
};

}  // namespace tessera::shard
