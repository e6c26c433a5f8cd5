#pragma once
// Executor: walks a schedule on real streams. It reads no policy: what happens, and when, is in the list.

#include <chrono>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "models/module.hpp"
#include "runtime/base/arena.hpp"
#include "runtime/base/stream.hpp"
#include "runtime/plan/plan.hpp"
#include "runtime/shard/manager.hpp"
#include "runtime/train/optimizer.hpp"

namespace tessera::train {

/// Where a micro-batch goes: (rows, T) int32 each, but for what is null.
struct BatchMemory {
  std::int32_t* ids = nullptr;
  std::int32_t* targets = nullptr;    // null: not wanted (generation)
  std::int32_t* positions = nullptr;  // null: rows are not packed
};

/// Where micro-batches come from. Called on the compute stream; must not allocate. All memory it sees is the host's.
class BatchSource {
 public:
  virtual ~BatchSource() = default;
  /// Rows of micro-batch `micro` on this rank; 0: an empty one.
  [[nodiscard]] virtual std::int64_t rows(int micro) const = 0;
  [[nodiscard]] virtual std::int64_t tokens() const = 0;  // T
  virtual void load(int micro, const BatchMemory& to) = 0;

  // Generation. Pointers to memory that stays during a pass.
  /// (rows, T) int32: where the tokens of a pass after the first stand; null: the first.
  [[nodiscard]] virtual const std::int32_t* positions() const { return nullptr; }
  /// (rows): how many of the T tokens of each row count; null: all.
  [[nodiscard]] virtual const std::int32_t* lengths() const { return nullptr; }
  /// Takes the logits (rows, V) of a pass. Returns how many rows want another one: the ranks' sum is
  /// left in StepBlock::sums.tokens.
  virtual std::int64_t take(std::span<float> logits) { return (void)logits, 0; }
};

/// Who else has a part in a training step. Called on the compute stream; must not allocate.
class StepCallback {
 public:
  virtual ~StepCallback() = default;
  /// What this rank tells the others, as late in the step as they can still be told.
  [[nodiscard]] virtual shard::ControlFlags flags() = 0;
  /// The unit's master and moments are about to change.
  virtual void before_update(int unit) = 0;
};

/// What a run of a schedule takes and leaves; everything that changes from step to step is here, in memory.
struct StepBlock {
  std::int64_t step = 0;
  double loss_scale = 0;  // 1 / valid tokens of the global batch, times gradient_scale
  /// Gradients come out multiplied by this power of two (fp16); norm and update take it out again, exactly. `skips`: a
  /// gradient or loss that is not finite skips the updates, on every rank alike, and ends nothing.
  double gradient_scale = 1;
  bool skips = false, skipped = false;  // asked for; happened
  /// On a device: everything of a training step but its decision and its updates. The state stays, and so does what the
  /// next run makes, to the last bit.
  bool warmup = false;
  double max_grad_norm = 0;          // 0: no clipping
  StepCallback* callback = nullptr;  // null: none
  kernels::LossSums local;           // of this rank's micro-batches
  shard::StepSums sums;              // of the world, after `norm`
  /// RouterInfo::num_losses() balance losses of the step, in units of balance_unit: this rank's, after `norm` the
  /// world's (on a device only those). Integers, so that no order matters.
  std::span<std::int64_t> balance;
  static constexpr double balance_unit = 0x1p-36;
  double grad_norm = 0;  // before clipping
  double data_seconds = 0,
         comm_seconds =
             0;  // compute waiting for data; for communication (on a device: its compute stream, by its clock)
};

/// One span of the trace: an instruction, or a wait of the compute stream.
struct TraceSpan {
  std::string name;               // "gather h.3", "backward h.3 m0", "wait gather h.3"
  int lane = 0;                   // shard::StreamId
  double begin_s = 0, end_s = 0;  // since the trace began, this rank's clock
};

class Executor {
 public:
  struct Parts {
    const plan::RunPlan* plan = nullptr;
    shard::ShardManager* manager = nullptr;
    Optimizer* optimizer = nullptr;  // null: inference
    Arena* arena = nullptr;
    /// threaded: one thread serves gather and reduce in list order. deferred: each runs only when waited for. On a
    /// device one stream serves both; its work is issued by a thread of its own where the transport blocks, else with
    /// everything else.
    Stream::Mode comm_streams = Stream::Mode::threaded;
  };
  explicit Executor(const Parts& parts);
  ~Executor();

  /// A schedule with every pointer resolved, so that running it looks nothing up and allocates nothing. It must outlive
  /// the executor: after a run that threw, the communication streams may still be in it.
  class BoundSchedule;
  [[nodiscard]] std::unique_ptr<BoundSchedule> bind(const shard::Schedule& schedule, models::Phase phase);
  /// Runs it; on return all streams of the host have drained. On a device everything has been issued, and the device
  /// has passed the norm (or, where there is none, the end): updates may be under way, in whose order the next run goes
  /// on. Throws what an instruction threw; Error (diverged) on every rank alike, before any update, naming step and
  /// unit.
  void run(BoundSchedule& program, BatchSource& source, StepBlock& block);

  /// All work issued so far, runs and the manager's, has been done; on the host it has been.
  void synchronize();
  /// The logits of the last pass (generation: of its rows), where the host reads them.
  [[nodiscard]] static const float* logits(const BoundSchedule& program);

  /// On a device spans are the device's, by its clock, and a run ends when all it has issued is done.
  void start_trace(int runs);
  [[nodiscard]] std::vector<TraceSpan> take_trace();

 private:
  struct Mark {  // a recorded span
    const BoundSchedule* program = nullptr;
    int instruction = -1;
    bool wait = false;
    double begin_s = 0, end_s = 0;
  };
  using Clock = std::chrono::steady_clock;

  static void step_into(void* program, std::int64_t instruction);
  void execute(BoundSchedule& program, int instruction);
  void load(BoundSchedule& program, int micro, std::int64_t rows);
  void forward(BoundSchedule& program, int instruction);
  void backward(BoundSchedule& program, int instruction);
  void add_balance(const BoundSchedule& program, const models::Batch& batch) const;
  void norm(BoundSchedule& program);
  void judge(BoundSchedule& program, int bad_unit);
  // On a device.
  void begin_on_device(BoundSchedule& program);
  void issue_norm(BoundSchedule& program);
  void wait_on_device(BoundSchedule& program, int instruction);
  void end_on_device(BoundSchedule& program);
  void begin_spans(BoundSchedule& program);
  void take_spans(BoundSchedule& program);
  void load_to_device(BoundSchedule& program, int micro, std::int64_t rows);
  [[nodiscard]] std::int64_t take_from_device(BoundSchedule& program, const TensorView& logits);
  [[nodiscard]] bool on_device() const { return device_ != host_device; }
  void wait_for(BoundSchedule& program, int instruction);
  [[nodiscard]] models::Batch batch(const BoundSchedule& program, std::int64_t rows) const;
  [[nodiscard]] double now() const;
  void mark(const Mark& mark, bool on_compute);

  Parts parts_;
  Device device_;
  Clock::time_point origin_ = Clock::now();
  std::vector<Mark> compute_marks_, comm_marks_;
  bool tracing_ = false;
  Event ended_;  // on a device: what a run has computed, its updates last
  Stream compute_;
  std::unique_ptr<Stream> copy_;  // on a device: what the host has written, up
  std::unique_ptr<Stream> comm_,
      reduce_;  // reduce_ is null where one thread serves both; last: they end before what they use
  Stream* streams_[shard::num_streams];
};

}  // namespace tessera::train
