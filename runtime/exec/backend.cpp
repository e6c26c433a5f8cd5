// SPDX-License-Identifier: Apache-2.0
#include "runtime/exec/backend.hpp"

#include <algorithm>
#include <cmath>

#include "runtime/base/error.hpp"
#include "runtime/exec/device_backend.hpp"
#include "runtime/exec/host_backend.hpp"

namespace tessera::exec {

std::unique_ptr<Executor::Backend> Executor::Backend::make(const Parts& parts, TraceRecorder& trace) {
  if (parts.plan->spec.device == host_device) return std::make_unique<HostBackend>(parts, trace);
  return std::make_unique<DeviceBackend>(parts, trace);
}

bool Executor::Backend::uses(shard::StreamId stream) const {
  const auto on_stream = [stream](const shard::Instruction& in) { return in.stream == stream; };
  return std::ranges::any_of(parts_.plan->schedules(), [&](const shard::Schedule* schedule) {
    return std::ranges::any_of(schedule->list, on_stream);
  });
}

void Executor::Backend::execute(void* program, std::int64_t instruction) {
  auto& p = *static_cast<BoundSchedule*>(program);
  p.executor->execute(p, static_cast<int>(instruction));
}

void Executor::Backend::execute_with_span(void* program, std::int64_t instruction) {
  const auto& p = *static_cast<Executor::BoundSchedule*>(program);
  TraceRecorder& trace = p.executor->trace();
  const double begin = trace.now();
  execute(program, instruction);
  trace.add({p.schedule, static_cast<int>(instruction), false, begin, trace.now()},
            p.schedule->list[static_cast<std::size_t>(instruction)].stream);
}

void Executor::Backend::load(BoundSchedule& program, int micro) { program.executor->load(program, micro); }

void Executor::Backend::issue_forward(BoundSchedule& program, int instruction) {
  program.executor->issue_forward(program, instruction);
}

TensorView Executor::Backend::logits_of(const BoundSchedule& program) { return program.executor->logits_of(program); }

void Executor::Backend::finish(std::initializer_list<Stream*> streams, Stream& caller) const noexcept {
  if (parts_.comm_streams != Stream::Mode::threaded) return;
  for (Stream* const stream : streams) try {
      Event end;
      if (stream == nullptr) continue;
      stream->record(end);
      caller.wait(end);
    } catch (const std::exception&) {  // of a task, or of a device that is gone: the thread skips the tasks after it
    }
}

void Executor::Backend::check_finite(BoundSchedule& program, int bad_unit) {
  StepBlock& block = *program.block;
  block.grad_norm = std::sqrt(block.sums.norm2.value()) / block.gradient_scale;
  const bool bad = block.sums.loss.nonfinite() || bad_unit >= 0;
  block.skipped = bad && block.skips;
  if (bad && !block.skips) {
    throw Error(ExitCode::diverged,
                block.sums.loss.nonfinite()
                    ? "the loss is not finite"
                    : "the gradient of unit " + program.schedule->units[static_cast<std::size_t>(bad_unit)].name +
                          " is not finite",
                strfmt("step %ld", block.step),
                "Lower the learning rate, raise the warm-up, or check the data near this step");
  }
}

}  // namespace tessera::exec
