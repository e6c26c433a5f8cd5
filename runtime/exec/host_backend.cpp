// SPDX-License-Identifier: Apache-2.0
#include "runtime/exec/host_backend.hpp"

#include <algorithm>

namespace tessera::exec {

using shard::StreamId;

HostBackend::HostBackend(const Executor::Parts& parts, TraceRecorder& trace) : Backend(parts, trace) {
  const bool one_thread = parts.comm_streams == Stream::Mode::threaded;
  gather_ = std::make_unique<Stream>(one_thread ? "comm" : "gather", parts.comm_streams);
  if (!one_thread) reduce_ = std::make_unique<Stream>("reduce", parts.comm_streams);
  for (const auto& [id, stream] : {std::pair{StreamId::replicate, &replicate_}, std::pair{StreamId::fetch, &fetch_},
                                   std::pair{StreamId::store, &store_}, std::pair{StreamId::exchange, &exchange_}})
    if (uses(id)) *stream = std::make_unique<Stream>(name_of(id), parts.comm_streams);
  streams_[static_cast<int>(StreamId::compute)] = &compute_;
  streams_[static_cast<int>(StreamId::gather)] = gather_.get();
  streams_[static_cast<int>(StreamId::reduce)] = reduce_ ? reduce_.get() : gather_.get();
  streams_[static_cast<int>(StreamId::replicate)] = replicate_ ? replicate_.get() : gather_.get();
  streams_[static_cast<int>(StreamId::host)] = &compute_;  // the same processor
  streams_[static_cast<int>(StreamId::fetch)] = fetch_ ? fetch_.get() : gather_.get();
  streams_[static_cast<int>(StreamId::store)] = store_ ? store_.get() : gather_.get();
  streams_[static_cast<int>(StreamId::exchange)] = exchange_ ? exchange_.get() : gather_.get();
}

HostBackend::~HostBackend() {
  finish({gather_.get(), reduce_.get(), replicate_.get(), fetch_.get(), store_.get(), exchange_.get()}, compute_);
}

void HostBackend::begin(Executor::BoundSchedule& program) {
  TESSERA_ASSERT(!program.block->warmup, "a warm-up step on the host");
  // Without a clip factor, which norm replaces.
  step_.optimizer = program.block->optimizer;
  step_.decision.clip = static_cast<double>(static_cast<float>(1.0 / program.block->gradient_scale));
}

/// The time counts as communication that did not overlap.
void HostBackend::wait_for(Executor::BoundSchedule& program, int instruction) {
  Event& event = program.events[static_cast<std::size_t>(instruction)];
  if (event.passed()) return event.wait();  // rethrows
  const double begin = trace_.now();
  event.wait();
  const double end = trace_.now();
  const shard::Instruction& awaited = program.schedule->list[static_cast<std::size_t>(instruction)];
  const bool moves = awaited.op == shard::Op::fetch || awaited.op == shard::Op::store || awaited.stage >= 0;
  (moves ? program.block->move_seconds : program.block->comm_seconds) += end - begin;
  trace_.add({program.schedule, instruction, true, begin, end}, StreamId::compute);
}

void HostBackend::enqueue(Executor::BoundSchedule& program, int instruction) {
  const shard::Instruction& in = program.schedule->list[static_cast<std::size_t>(instruction)];
  const bool spans = trace_.on() && in.op != shard::Op::release;
  stream(in.stream).enqueue(spans ? &Backend::execute_with_span : &Backend::execute, &program, instruction);
}

void HostBackend::end(Executor::BoundSchedule& program) {
  for (Stream* stream : {gather_.get(), reduce_.get(), replicate_.get(), exchange_.get()})
    if (stream != nullptr) stream->synchronize();
  const double begin = trace_.now();
  for (Stream* stream : {fetch_.get(), store_.get()})
    if (stream != nullptr) stream->synchronize();
  program.block->move_seconds += trace_.now() - begin;
}

StepPointers HostBackend::pointers(const Executor::BoundSchedule& program) {
  StepBlock& block = *program.block;
  return {.scalars = &step_,
          .loss_scale = &block.loss_scale,
          .gradient_scale = &block.gradient_scale,
          .sums = &block.local,
          .extra = block.extra.data(),
          .positions = program.source->positions()};
}

std::int64_t HostBackend::take(Executor::BoundSchedule& program) {
  const TensorView logits = logits_of(program);
  return program.source->take({logits.as<float>(), static_cast<std::size_t>(logits.numel())});
}

void HostBackend::norm(Executor::BoundSchedule& program) {
  StepBlock& block = *program.block;
  block.sums.loss = block.local.loss;
  block.sums.tokens = block.local.tokens;
  block.sums.correct = block.local.correct;
  block.sums.extra = block.extra;
  const int bad_unit = parts_.manager->norm(block.sums);
  if (program.phase != models::Phase::train) return;
  check_finite(program, bad_unit);
  const double limit = block.max_grad_norm;
  const double clip = limit > 0 ? std::min(1.0, limit / (block.grad_norm + 1e-6)) : 1.0;
  step_.decision.clip = static_cast<double>(static_cast<float>(clip / block.gradient_scale));
}

}  // namespace tessera::exec
