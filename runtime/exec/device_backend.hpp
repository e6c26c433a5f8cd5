// SPDX-License-Identifier: Apache-2.0
#pragma once
// The executor's backend on a device. Host and device exchange data through pinned memory, and the host enqueues a step
// without waiting. It waits once, for the norm at the end; the updates run while the host enqueues the next step.

#include "runtime/exec/backend.hpp"

namespace tessera::exec {

class DeviceBackend final : public Executor::Backend {
 public:
  DeviceBackend(const Executor::Parts& parts, TraceRecorder& trace);
  ~DeviceBackend() override;

  [[nodiscard]] Stream& stream(shard::StreamId id) override;
  void begin(Executor::BoundSchedule& program) override;
  [[nodiscard]] bool replay(Executor::BoundSchedule& program) override;
  void wait_for(Executor::BoundSchedule& program, int instruction) override;
  void enqueue(Executor::BoundSchedule& program, int instruction) override;
  void end(Executor::BoundSchedule& program) override;
  [[nodiscard]] StepPointers pointers(const Executor::BoundSchedule& program) override;
  [[nodiscard]] const kernels::StepScalars* host_scalars(const Executor::BoundSchedule& program) override;
  void copy_batch(Executor::BoundSchedule& program, int micro, std::int64_t rows) override;
  [[nodiscard]] std::int64_t take(Executor::BoundSchedule& program) override;
  void norm(Executor::BoundSchedule& program) override;
  void synchronize() override;

 private:
  void copy_fields(const Executor::BoundSchedule& program, int micro, std::int64_t rows, StreamView stream);
  void issue_decode(Executor::BoundSchedule& program);
  void copy_result(Executor::BoundSchedule& program);
  [[nodiscard]] std::int64_t receive(Executor::BoundSchedule& program);
  /// Whether the waits of the run in progress are between timed events.
  [[nodiscard]] bool times_waits(const Executor::BoundSchedule& program) const;
  void begin_spans(Executor::BoundSchedule& program);
  void take_spans(Executor::BoundSchedule& program);

  Device device_;
  Event ended_;                     // the end of a run, updates included
  Event fetched_, stored_;          // the end of the copies of a run
  kernels::StepScalars host_step_;  // what updates on the host read
  bool decided_ = false;            // host_step_ has the decision of this step
  Stream compute_;
  Stream copy_;  // host-to-device copies of micro-batches
  // Last, so that they end before what they use. Null if no instruction is on the stream.
  Stream comm_;
  std::unique_ptr<Stream> replicate_, exchange_;
  // Copies between the tiers, and updates on the host; null if no state is offloaded.
  std::unique_ptr<Stream> fetch_, store_, host_;
};

}  // namespace tessera::exec
