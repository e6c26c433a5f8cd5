// SPDX-License-Identifier: Apache-2.0
#pragma once
// The executor's backend on the host: compute runs on the caller's thread, collectives on threads of their own.

#include "runtime/exec/backend.hpp"

namespace tessera::exec {

class HostBackend final : public Executor::Backend {
 public:
  HostBackend(const Executor::Parts& parts, TraceRecorder& trace);
  ~HostBackend() override;

  [[nodiscard]] Stream& stream(shard::StreamId id) override { return *streams_[static_cast<int>(id)]; }
  void begin(Executor::BoundSchedule& program) override;
  void wait_for(Executor::BoundSchedule& program, int instruction) override;
  void enqueue(Executor::BoundSchedule& program, int instruction) override;
  void end(Executor::BoundSchedule& program) override;
  [[nodiscard]] StepPointers pointers(const Executor::BoundSchedule& program) override;
  [[nodiscard]] const kernels::StepScalars* host_scalars(const Executor::BoundSchedule&) override { return &step_; }
  void copy_batch(Executor::BoundSchedule&, int, std::int64_t) override {}
  [[nodiscard]] std::int64_t take(Executor::BoundSchedule& program) override;
  void norm(Executor::BoundSchedule& program) override;
  void synchronize() override {}  // a run ends when its streams are idle

 private:
  kernels::StepScalars step_;  // what the updates read
  Stream compute_{"compute", Stream::Mode::immediate};
  // Last, so that they end before what they use. Null if gather_ has its instructions.
  std::unique_ptr<Stream> gather_, reduce_, replicate_, fetch_, store_, exchange_;
  Stream* streams_[shard::num_streams];
};

}  // namespace tessera::exec
