// SPDX-License-Identifier: Apache-2.0
#pragma once
// Executor: runs a schedule on streams. It reads no policy: what happens, and when, is in the schedule.

#include <array>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "kernels/sample.hpp"
#include "models/module.hpp"
#include "runtime/base/arena.hpp"
#include "runtime/base/stream.hpp"
#include "runtime/exec/optimizer.hpp"
#include "runtime/exec/trace.hpp"
#include "runtime/plan/plan.hpp"
#include "runtime/shard/manager.hpp"

namespace tessera::exec {

/// Buffers that a micro-batch is written to: (rows, T) each, or (sequences) where the field is one of these. Null: the
/// run has no such tensor, or does not want it.
class BatchMemory {
 public:
  [[nodiscard]] std::int32_t* ids() const { return as<std::int32_t>(models::BatchField::ids); }
  [[nodiscard]] std::int32_t* targets() const { return as<std::int32_t>(models::BatchField::targets); }
  [[nodiscard]] std::int32_t* positions() const { return as<std::int32_t>(models::BatchField::positions); }
  [[nodiscard]] float* loss_weights() const { return as<float>(models::BatchField::loss_weights); }
  [[nodiscard]] std::int32_t* document_starts() const { return as<std::int32_t>(models::BatchField::document_starts); }
  [[nodiscard]] std::int32_t* document_lengths() const {
    return as<std::int32_t>(models::BatchField::document_lengths);
  }

  [[nodiscard]] double* reference_sums() const { return as<double>(models::BatchField::reference_sums); }
  [[nodiscard]] float* labels() const { return as<float>(models::BatchField::labels); }
  [[nodiscard]] double* kl() const { return as<double>(models::BatchField::kl); }
  [[nodiscard]] float* margins() const { return as<float>(models::BatchField::margins); }
  [[nodiscard]] float* nll_weights() const { return as<float>(models::BatchField::nll_weights); }
  [[nodiscard]] std::int32_t* sequence_ends() const { return as<std::int32_t>(models::BatchField::sequence_ends); }

  [[nodiscard]] std::byte* operator[](models::BatchField field) const { return data_[static_cast<std::size_t>(field)]; }
  void set(models::BatchField field, std::byte* data) { data_[static_cast<std::size_t>(field)] = data; }
  [[nodiscard]] std::int32_t* row_positions() const { return as<std::int32_t>(models::BatchField::row_positions); }
  [[nodiscard]] std::int32_t* part_positions() const { return as<std::int32_t>(models::BatchField::part_positions); }
  [[nodiscard]] std::int32_t* part_ids() const { return as<std::int32_t>(models::BatchField::part_ids); }
  [[nodiscard]] std::int32_t* part_targets() const { return as<std::int32_t>(models::BatchField::part_targets); }
  /// How many ranks have the same rows (RunSpec::row_sharing).
  void set_sharing(models::RowSharing sharing) { sharing_ = sharing; }
  /// The same tensors from token `token` of this rank on, or from sequence `sequence` on.
  [[nodiscard]] BatchMemory from(std::int64_t token, std::int64_t sequence) const {
    BatchMemory rest = *this;
    for (const models::BatchFieldInfo& field : models::batch_fields)
      if (std::byte* data = (*this)[field.field])
        rest.set(field.field, data + field.numel(field.per == models::BatchFieldInfo::Per::sequence ? sequence : 1,
                                                 token, sharing_) *
                                         static_cast<std::int64_t>(size_of(field.dtype)));
    return rest;
  }

 private:
  template <class T>
  [[nodiscard]] T* as(models::BatchField field) const {
    return reinterpret_cast<T*>((*this)[field]);
  }
  std::array<std::byte*, models::batch_fields.size()> data_{};
  models::RowSharing sharing_;
};

/// Source of micro-batches, in host memory. Called on the compute stream, rows() and tokens() on every stream; must not
/// allocate.
class BatchSource {
 public:
  virtual ~BatchSource() = default;
  /// Rows of micro-batch `micro` on this rank; 0: an empty one.
  [[nodiscard]] virtual std::int64_t rows(int micro) const = 0;
  /// What a value of Per::sequence is of: the rows, or the sequences that are one row, end to end.
  [[nodiscard]] virtual std::int64_t sequences(int micro) const { return rows(micro); }
  /// T of its rows, of which this rank has all or, along the context or tensor axis, a part: RunSpec::tokens at most.
  /// No gradient or parameter that ranks exchange depends on it, so each has its own.
  [[nodiscard]] virtual std::int64_t tokens(int micro) const = 0;
  /// Where in its row each half begins of the part that this rank, or its tensor group, has: the second one at T/2,
  /// rounded down, of a whole row.
  [[nodiscard]] virtual std::array<std::int64_t, 2> row_begins(int micro) const { return {0, tokens(micro) / 2}; }
  /// The first row of a micro-batch, in the numbering of the global batch.
  [[nodiscard]] virtual std::int64_t first_row(int micro) const { return (void)micro, 0; }
  /// If the one row of a micro-batch is several end to end: how many tokens each has, in the order of the numbering.
  /// Valid until the source changes.
  [[nodiscard]] virtual std::span<const std::int64_t> row_lengths(int micro) const {
    return (void)micro, std::span<const std::int64_t>();
  }
  virtual void load(int micro, const BatchMemory& to) = 0;
  /// The groups of the list of documents that load() wrote, if there is memory for it. Valid until the next load() of
  /// the micro-batch.
  [[nodiscard]] virtual std::span<const kernels::DocumentGroup> document_groups(int micro) const {
    return (void)micro, std::span<const kernels::DocumentGroup>();
  }

  // Generation. The pointers are valid during a pass.
  /// (rows, T) int32: positions of the tokens of a decode pass; null: prefill.
  [[nodiscard]] virtual const std::int32_t* positions() const { return nullptr; }
  /// (rows): how many of the T tokens of each row are no padding; null: all.
  [[nodiscard]] virtual const std::int32_t* lengths() const { return nullptr; }
  /// Receives the logits (rows, V) of a pass. Returns how many rows need another pass; StepBlock::sums.tokens is then
  /// the sum over the ranks.
  virtual std::int64_t take(std::span<float> logits) { return (void)logits, 0; }
  /// False: on a device take_chosen is called in place of take, and the logits stay there, unless a draw is undecided
  /// (kernels/sample.hpp). May change from pass to pass.
  [[nodiscard]] virtual bool wants_logits() const { return true; }
  /// How the device then chooses; null: the largest logit, the lowest index of equals.
  [[nodiscard]] virtual const kernels::SampleRule* sampling() const { return nullptr; }
  /// With sampling(), a number in [0, 1) for each row.
  virtual void draw(std::span<double> numbers) const { (void)numbers; }
  /// By row; -1: a logit of the row is not finite.
  virtual std::int64_t take_chosen(std::span<const std::int32_t> ids) { return (void)ids, 0; }
};

/// Called during training steps, on the thread that runs the executor and no other; must not allocate.
class StepCallback {
 public:
  virtual ~StepCallback() = default;
  /// This rank's control flags, asked for once a step, after its last backward is issued and before `norm` sums them.
  [[nodiscard]] virtual shard::ControlFlags flags() = 0;
  /// Called before the unit's master weights and moments change. Where updates on a device's host need not follow norm
  /// (Schedule::updates_before_norm), on a thread beside the one that runs the executor.
  virtual void before_update(int unit) = 0;
};

/// Inputs and results of one run of a schedule.
struct StepBlock {
  std::int64_t step = 0;
  std::uint64_t seed = 0;  // of dropout
  double loss_scale = 0;   // 1 / valid tokens of the global batch, times gradient_scale
  /// Power of two that multiplies the gradients (fp16); norm and update divide by it, exactly. `skips`: a gradient or
  /// loss that is not finite skips the updates on every rank, instead of ending the run.
  double gradient_scale = 1;
  bool skips = false, skipped = false;  // enabled; happened
  /// On a device: a training step whose updates are skipped, by the flag that an overflow sets: parameters, states and
  /// the next run are unchanged.
  bool warmup = false;
  bool replayed = false;                // on a device: happened: a decode pass was issued as one graph (Parts::replays)
  kernels::OptimizerScalars optimizer;  // of the step
  double max_grad_norm = 0;             // 0: no clipping
  StepCallback* callback = nullptr;     // null: none
  kernels::LossSums local;              // of this rank's micro-batches
  shard::StepSums sums;                 // of the world, after `norm`
  /// Model::num_extra_sums() sums of the run: RouterInfo::num_losses() balance losses in units of balance_unit, then
  /// the metrics of the loss (Batch::metrics): this rank's, and after `norm` the world's (on a device only those).
  /// Integers, so that the order of summation does not change them. Empty: not wanted, and the loss has no metrics.
  std::span<std::int64_t> extra;
  static constexpr double balance_unit = 0x1p-36;
  double grad_norm = 0;     // before clipping
  double data_seconds = 0;  // the compute stream waited for data
  bool times_waits = true;  // of a device's training steps; with a trace they are timed in any case
  double comm_seconds = 0;  // the compute stream waited for communication, if that is timed
  // On the host: it waited for fetches and stores, for gathers and reductions that use their slots, and for their end.
  double move_seconds = 0;
  double update_seconds = 0;  // in updates; of those on a device, until they are launched
};

class Executor {
 public:
  struct Parts {
    const plan::RunPlan* plan = nullptr;
    shard::ShardManager* manager = nullptr;
    Optimizer* optimizer = nullptr;  // null: inference
    Arena* arena = nullptr;
    /// threaded: one thread runs the gather and reduce streams, in list order, and another the replicate stream, if
    /// the training schedule uses it. deferred: each runs when it is waited for. On a device the same two are streams
    /// of the device; threads of their own issue the work if the transport blocks the host.
    Stream::Mode comm_streams = Stream::Mode::threaded;
    /// On a device: a decode pass without collectives is captured at its second run with the same rows, and replayed as
    /// one launch from then on, with the same bits. A traced run is not.
    bool replays = true;
  };
  explicit Executor(const Parts& parts);
  ~Executor();

  /// A schedule with all pointers resolved, so that a run looks up and allocates nothing. It must outlive the executor:
  /// after an exception the communication streams may still use it.
  class BoundSchedule;
  [[nodiscard]] std::unique_ptr<BoundSchedule> bind(const shard::Schedule& schedule, models::Phase phase);
  /// Runs it. On return the host's streams are idle. On a device all work is enqueued and `norm` is done (without a
  /// norm: everything); updates may still run. Throws what an instruction threw; Error (diverged) on every rank, before
  /// any update, with step and unit.
  void run(BoundSchedule& program, BatchSource& source, StepBlock& block);

  /// On a device: waits for all work enqueued so far.
  void synchronize();
  /// Logits of the last pass, in host memory.
  [[nodiscard]] static const float* logits(const BoundSchedule& program);

  /// Records the spans of the next `runs` runs. On a device by its clock; then a run ends when the device is idle.
  void start_trace(int runs);
  [[nodiscard]] std::vector<TraceSpan> take_trace() { return trace_.take(); }
  [[nodiscard]] TraceRecorder& trace() { return trace_; }

  class Backend;

 private:
  void execute(BoundSchedule& program, int instruction);
  void load(BoundSchedule& program, int micro);
  void forward(BoundSchedule& program, int instruction);
  void issue_forward(BoundSchedule& program, int instruction);
  void backward(BoundSchedule& program, int instruction);
  /// The quantized matrices that an instruction of a module reads, to the workspace of all modules.
  void dequantize(const BoundSchedule& program, int instruction);
  void update(BoundSchedule& program, const shard::Instruction& instruction,
              const shard::ShardManager::SlotMemory& memory);
  /// Copies a module's activations between a staging slot and host memory.
  void move_activations(const BoundSchedule& program, int instruction);
  /// Of an activation between two stages of a module.
  void exchange(const BoundSchedule& program, int instruction);
  void add_balance(const BoundSchedule& program, const models::Batch& batch, const models::BatchShape& shape);
  /// As the modules of a model instance see it (shard::Instruction::instance).
  [[nodiscard]] models::Batch batch(const BoundSchedule& program, int micro, int instance);
  /// Where a pass of generation writes its logits, (rows, V).
  [[nodiscard]] TensorView logits_of(const BoundSchedule& program) const;
  [[nodiscard]] models::BatchShape shape_of(const BoundSchedule& program, models::Phase phase, int micro) const;

  Parts parts_;
  Device device_;
  const models::Module* dequantized_ = nullptr;  // whose matrices are in the workspace, in this run
  TraceRecorder trace_;
  std::unique_ptr<Backend> backend_;  // last, so that its streams end before what they use
  StreamView compute_;
};

}  // namespace tessera::exec
