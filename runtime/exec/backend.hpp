// SPDX-License-Identifier: Apache-2.0
#pragma once
// Executor::Backend: what of a run differs between the host and a device. Internal to the executor.

#include <initializer_list>

#include "runtime/exec/bound_schedule.hpp"

namespace tessera::exec {

/// Where the kernels of a run read its scalars, and add to its sums.
struct StepPointers {
  const kernels::StepScalars* scalars = nullptr;                  // of the updates
  const double *loss_scale = nullptr, *gradient_scale = nullptr;  // StepBlock's; training
  kernels::LossSums* sums = nullptr;
  std::int64_t* extra = nullptr;            // StepBlock::extra
  const std::int32_t* positions = nullptr;  // of a decode pass, or null
};

class Executor::Backend {
 public:
  /// Streams for these parts. `trace` must outlive the backend.
  [[nodiscard]] static std::unique_ptr<Backend> make(const Parts& parts, TraceRecorder& trace);
  Backend(const Parts& parts, TraceRecorder& trace) : parts_(parts), trace_(trace) {}
  virtual ~Backend() = default;
  Backend(const Backend&) = delete;
  Backend& operator=(const Backend&) = delete;

  [[nodiscard]] virtual Stream& stream(shard::StreamId id) = 0;
  virtual void begin(BoundSchedule& program) = 0;
  /// Runs all instructions before `norm` as one launch, if this is a decode pass that may be replayed.
  [[nodiscard]] virtual bool replay(BoundSchedule& program) { return (void)program, false; }
  /// The compute stream waits for an instruction of another stream.
  virtual void wait_for(BoundSchedule& program, int instruction) = 0;
  /// Enqueues the instruction on its stream, with its span if there is a trace.
  virtual void enqueue(BoundSchedule& program, int instruction) = 0;
  virtual void end(BoundSchedule& program) = 0;

  // Called by the instructions.
  [[nodiscard]] virtual StepPointers pointers(const BoundSchedule& program) = 0;
  /// What an update on the host reads, in host memory. norm has run, unless updates need not wait for it.
  [[nodiscard]] virtual const kernels::StepScalars* host_scalars(const BoundSchedule& program) = 0;
  /// The micro-batch that the source has written to program.host_buffers, from row 0 of `micro` on, is in
  /// program.buffers when later work of the compute stream runs.
  virtual void copy_batch(BoundSchedule& program, int micro, std::int64_t rows) = 0;
  /// BatchSource::take.
  [[nodiscard]] virtual std::int64_t take(BoundSchedule& program) = 0;
  virtual void norm(BoundSchedule& program) = 0;
  /// Waits for all work enqueued so far.
  virtual void synchronize() = 0;

 protected:
  /// True if an instruction of the run's schedules is on the stream.
  [[nodiscard]] bool uses(shard::StreamId stream) const;
  /// Executes an instruction of a BoundSchedule: a Stream::Function.
  static void execute(void* program, std::int64_t instruction);
  /// The same, with its span by the host's clock.
  static void execute_with_span(void* program, std::int64_t instruction);
  // The executor's, for the backends: Executor has no friends but what is nested in it.
  static void load(BoundSchedule& program, int micro);
  static void issue_forward(BoundSchedule& program, int instruction);
  [[nodiscard]] static TensorView logits_of(const BoundSchedule& program);
  /// For destructors: waits until the threads of the streams (null: none) have done or skipped their tasks. A task may
  /// wait for another stream, which must not have ended. Deferred streams drop their tasks. `caller` is immediate.
  void finish(std::initializer_list<Stream*> streams, Stream& caller) const noexcept;
  /// Computes the gradient norm of the summed counters. If anything is not finite, skips the step or ends the run.
  static void check_finite(BoundSchedule& program, int bad_unit);

  Parts parts_;
  TraceRecorder& trace_;
};

}  // namespace tessera::exec
