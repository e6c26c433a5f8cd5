// The executor on a device. Host and device exchange data through pinned memory, and the host enqueues a step without
// waiting. It waits once, for the norm at the end; the updates run while the host enqueues the next step.
#include <algorithm>

#include "runtime/base/error.hpp"
#include "runtime/base/transfer.hpp"
#include "runtime/train/bound_schedule.hpp"

namespace tessera::train {

void Executor::synchronize() {
  if (!on_device()) return;
  compute_.synchronize();
  comm_->synchronize();
}

/// Copies the scalars of the step to the device, after the updates of the previous step, which read the old ones.
void Executor::begin_on_device(BoundSchedule& program) {
  program.waited = 0;
  if (tracing_) begin_spans(program);
  comm_->wait(ended_);  // a gather reads what the previous updates write
  if (program.step == nullptr) return;
  const StepBlock& block = *program.block;
  *program.pinned_step = {.decision = {},
                          .optimizer = block.optimizer,
                          .loss_scale = block.loss_scale,
                          .gradient_scale = block.gradient_scale,
                          .max_grad_norm = block.max_grad_norm};
  copy_bytes(program.step, program.pinned_step, sizeof *program.step, compute_.view());
}

/// Copies a micro-batch to the device. The previous run no longer reads them: its norm (or, without one, its end) is
/// done.
void Executor::load_to_device(BoundSchedule& program, int micro, std::int64_t rows) {
  const std::int64_t first = micro * program.tokens_per_micro;
  const BatchMemory from = program.pinned.from(first), to = program.buffers.from(first);
  const auto n = static_cast<std::size_t>(rows * program.source->tokens());
  const bool generates = program.phase == models::Phase::logits;
  const std::int32_t* positions = program.source->positions();
  if (generates && positions != nullptr) std::copy_n(positions, n, from.positions());
  for (const models::BatchFieldInfo& field : models::batch_fields) {
    const bool wanted = !generates || field.field == models::BatchField::ids ||
                        (field.field == models::BatchField::positions && positions != nullptr);
    if (wanted && to[field.field] != nullptr)
      copy_bytes(to[field.field], from[field.field], n * size_of(field.dtype), copy_->view());
  }
  Event& copied = program.copied[static_cast<std::size_t>(micro)];
  copy_->record(copied);
  compute_.wait(copied);
}

/// Waits for the logits: the host chooses the next tokens.
std::int64_t Executor::take_from_device(BoundSchedule& program, const TensorView& logits) {
  copy_bytes(program.pinned_logits, logits.data, logits.nbytes(), compute_.view());
  compute_.record(program.logits_copied);
  program.logits_copied.wait();
  return program.source->take(
      {reinterpret_cast<float*>(program.pinned_logits), static_cast<std::size_t>(logits.numel())});
}

void Executor::issue_norm(BoundSchedule& program) {
  StepBlock& block = *program.block;
  const bool passes_count = program.phase != models::Phase::logits;
  shard::StepSums mine;
  mine.tokens = block.local.tokens;
  mine.flags = block.sums.flags;
  parts_.manager->issue_norm(
      mine, passes_count ? shard::ShardManager::Counts::on_device : shard::ShardManager::Counts::of_host,
      block.warmup ? nullptr : program.step);
}

/// Makes the compute stream wait for an instruction, with timed events before and after.
void Executor::wait_on_device(BoundSchedule& program, int instruction) {
  Event& event = program.events[static_cast<std::size_t>(instruction)];
  if (program.waits.empty()) return compute_.wait(event);
  BoundSchedule::Wait& wait = program.waits[program.waited++];
  TESSERA_ASSERT(wait.instruction == instruction, "a wait for instruction %d instead of %d", instruction,
                 wait.instruction);
  wait.from.record(compute_);
  compute_.wait(event);
  wait.to.record(compute_);
}

/// Waits until the device is idle, then reads its clock and the host's together.
void Executor::begin_spans(BoundSchedule& program) {
  synchronize();
  const std::size_t wanted = 2 * program.schedule->list.size() + 1;
  program.spans.reserve(wanted);
  while (program.spans.size() < wanted) program.spans.emplace_back(device_);
  program.spans.back().record(compute_);
  program.began_s = now();
}

void Executor::take_spans(BoundSchedule& program) {
  const auto at = [&](const TimedEvent& event) {
    return program.began_s + TimedEvent::seconds(program.spans.back(), event);
  };
  std::size_t waited = 0;
  for (int i = 0; i < static_cast<int>(program.schedule->list.size()); ++i) {
    const auto& instruction = program.schedule->list[static_cast<std::size_t>(i)];
    const bool computes = instruction.stream == shard::StreamId::compute;
    for (std::size_t k = 0; computes && !program.waits.empty() && k < instruction.after.size(); ++k) {
      const BoundSchedule::Wait& wait = program.waits[waited++];
      mark({&program, wait.instruction, true, at(wait.from), at(wait.to)}, shard::StreamId::compute);
    }
    if (instruction.op == shard::Op::release) continue;
    const std::size_t span = 2 * static_cast<std::size_t>(i);
    mark({&program, i, false, at(program.spans[span]), at(program.spans[span + 1])}, instruction.stream);
  }
}

void Executor::end_on_device(BoundSchedule& program) {
  compute_.record(ended_);
  if (tracing_ || program.norm < 0) synchronize();
  if (tracing_) take_spans(program);
  if (program.norm < 0) return;
  if (program.waits.empty()) program.events[static_cast<std::size_t>(program.norm)].wait();
  else program.waits.back().to.wait();  // the last wait is for the norm: all events before it are done
  for (const BoundSchedule::Wait& wait : program.waits)
    program.block->comm_seconds += TimedEvent::seconds(wait.from, wait.to);
  program.block->sums.extra = program.block->balance;
  const int bad_unit = parts_.manager->read_norm(program.block->sums);
  if (program.block->warmup) return synchronize();
  if (program.phase == models::Phase::train) check_finite(program, bad_unit);
}

}  // namespace tessera::train
