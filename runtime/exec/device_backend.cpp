// SPDX-License-Identifier: Apache-2.0
#include "runtime/exec/device_backend.hpp"

#include <algorithm>

#include "kernels/argmax.hpp"
#include "kernels/gemm_choice.hpp"
#include "kernels/sample.hpp"
#include "runtime/base/error.hpp"
#include "runtime/base/transfer.hpp"
#include "runtime/plan/activations.hpp"

namespace tessera::exec {

/// A transport that blocks the host needs a thread that enqueues its collectives.
static Stream::Mode comm_mode(const Executor::Parts& parts) {
  const plan::RunSpec& spec = parts.plan->spec;
  const bool alone = spec.strategy.mesh.world() == 1;
  if (parts.comm_streams != Stream::Mode::threaded) return parts.comm_streams;
  return alone || !spec.topology.staged ? Stream::Mode::immediate : Stream::Mode::threaded;
}

/// Copies with a disk block the thread that makes them, and so does waiting for a transport that blocks: then fetches
/// and stores have threads of their own, as on the host, and the caller's goes on launching.
static Stream::Mode move_mode(const Executor::Parts& parts) {
  const bool disk = parts.plan->costs.in[static_cast<int>(Memory::disk)] > 0;
  return disk && parts.comm_streams == Stream::Mode::threaded ? Stream::Mode::threaded : comm_mode(parts);
}

DeviceBackend::DeviceBackend(const Executor::Parts& parts, TraceRecorder& trace)
    : Backend(parts, trace),
      device_(parts.plan->spec.device),
      compute_("compute", Stream::Mode::immediate, device_, Priority::normal),
      copy_("copy", Stream::Mode::immediate, device_, Priority::normal),
      comm_("comm", comm_mode(parts), device_, Priority::high) {
  using shard::StreamId;
  if (uses(StreamId::fetch)) fetch_ = std::make_unique<Stream>("fetch", move_mode(parts), device_, Priority::normal);
  if (uses(StreamId::store)) store_ = std::make_unique<Stream>("store", move_mode(parts), device_, Priority::normal);
  // Beside backward, or after norm, which the caller waits for: then it is on the caller's thread.
  const bool beside = parts.plan->main().updates_before_norm;
  if (uses(StreamId::host))
    host_ = std::make_unique<Stream>("host", beside ? Stream::Mode::threaded : Stream::Mode::immediate);
  if (uses(StreamId::replicate))
    replicate_ = std::make_unique<Stream>("replicate", comm_mode(parts), device_, Priority::high);
  if (uses(StreamId::exchange))
    exchange_ = std::make_unique<Stream>("exchange", comm_mode(parts), device_, Priority::high);
  parts.manager->run_on(comm_.view(), stream(shard::StreamId::replicate).view());
  kernels::set_gemm_workspace(compute_.view(), parts.arena->data({SlotUse::gemm_workspace}));
}

DeviceBackend::~DeviceBackend() {
  finish({host_.get(), fetch_.get(), store_.get(), replicate_.get(), exchange_.get(), &comm_}, compute_);
  try {
    kernels::set_gemm_workspace(compute_.view(), nullptr);
  } catch (const std::exception&) {  // the device is gone
  }
}

/// In immediate mode (NCCL) one host thread launches the list in its order, which is the same on all ranks: no launch
/// waits for a later one, on any rank, whatever order the device's queues and the library's own calls add.
Stream& DeviceBackend::stream(shard::StreamId id) {
  if (id == shard::StreamId::compute) return compute_;
  if (id == shard::StreamId::fetch) return *fetch_;
  if (id == shard::StreamId::store) return *store_;
  if (id == shard::StreamId::host) return *host_;
  if (id == shard::StreamId::exchange) return *exchange_;
  return id == shard::StreamId::replicate && replicate_ != nullptr ? *replicate_ : comm_;
}

void DeviceBackend::synchronize() {
  compute_.synchronize();
  comm_.synchronize();
  for (Stream* stream : {replicate_.get(), exchange_.get(), host_.get(), fetch_.get(), store_.get()})
    if (stream != nullptr) stream->synchronize();
}

/// Copies the scalars of the step to the device, after the updates of the previous step, which read the old ones.
void DeviceBackend::begin(Executor::BoundSchedule& program) {
  program.waited = 0;
  if (trace_.on()) begin_spans(program);
  comm_.wait(ended_);  // a gather reads what the previous updates write
  for (Stream* stream : {replicate_.get(), fetch_.get(), store_.get()})
    if (stream != nullptr) stream->wait(ended_);
  host_step_.optimizer = program.block->optimizer;
  host_step_.decision = {.clip = static_cast<double>(static_cast<float>(1.0 / program.block->gradient_scale))};
  host_step_.gradient_scale = program.block->gradient_scale;
  host_step_.max_grad_norm = program.block->max_grad_norm;
  decided_ = false;
  if (program.step == nullptr) return;
  const StepBlock& block = *program.block;
  *program.pinned_step = {.decision = {.skip = block.warmup ? 1 : 0},
                          .optimizer = block.optimizer,
                          .loss_scale = block.loss_scale,
                          .gradient_scale = block.gradient_scale,
                          .max_grad_norm = block.max_grad_norm};
  copy_bytes(program.step, program.pinned_step, sizeof *program.step, compute_.view());
}

/// The positions of a decode pass, in pinned memory.
static void write_positions(const Executor::BoundSchedule& program, std::int64_t rows) {
  if (const std::int32_t* positions = program.source->positions(); program.phase == models::Phase::logits && positions)
    std::copy_n(positions, rows, program.host_buffers.positions());
}

/// The random numbers of a pass, in pinned memory.
static void write_draws(const Executor::BoundSchedule& program, std::int64_t rows) {
  if (program.draws != nullptr && program.source->sampling() != nullptr)
    program.source->draw({program.host_draws, static_cast<std::size_t>(rows)});
}

void DeviceBackend::copy_fields(const Executor::BoundSchedule& program, int micro, std::int64_t rows,
                                StreamView stream) {
  const std::int64_t first = micro * program.tokens_per_micro, sequence = micro * program.sequences_per_micro,
                     tokens = program.source->tokens(micro), sequences = program.source->sequences(micro);
  const BatchMemory from = program.host_buffers.from(first, sequence), to = program.buffers.from(first, sequence);
  const bool generates = program.phase == models::Phase::logits, decodes = program.source->positions() != nullptr;
  for (const models::BatchFieldInfo& field : models::batch_fields) {
    const bool wanted = !generates || field.field == models::BatchField::ids ||
                        (field.field == models::BatchField::positions && decodes);
    if (!wanted || to[field.field] == nullptr) continue;
    const std::int64_t of = field.per == models::BatchFieldInfo::Per::sequence ? sequences : rows;
    copy_bytes(
        to[field.field], from[field.field],
        static_cast<std::size_t>(field.numel(of, tokens, parts_.plan->spec.row_sharing())) * size_of(field.dtype),
        stream);
  }
}

/// Copies a micro-batch to the device. The previous run no longer reads them: its norm (or, without one, its end) is
/// done.
void DeviceBackend::copy_batch(Executor::BoundSchedule& program, int micro, std::int64_t rows) {
  write_positions(program, rows);
  copy_fields(program, micro, rows, copy_.view());
  Event& copied = program.copied[static_cast<std::size_t>(micro)];
  copy_.record(copied);
  compute_.wait(copied);
}

/// The first pass of a number of rows is issued kernel by kernel: what is loaded or chosen at a kernel's first call is
/// then. The second is captured: everything that changes from pass to pass is in memory, ids and positions.
bool DeviceBackend::replay(Executor::BoundSchedule& program) {
  BatchSource& source = *program.source;
  const std::int64_t rows = source.rows(0);
  if (!program.replays || trace_.on() || rows == 0 || source.positions() == nullptr) return false;
  Executor::BoundSchedule::Decode& decode = program.decode;
  const kernels::SampleRule* const rule = source.sampling();
  const std::optional<kernels::SampleRule> now = rule ? std::optional(*rule) : std::nullopt;
  const bool warm = decode.rows == rows && decode.wants_logits == source.wants_logits() && decode.rule == now;
  if (!warm) decode.captured = false;
  decode.rows = rows;
  decode.wants_logits = source.wants_logits();
  decode.rule = now;
  if (!warm) return false;
  load(program, 0);
  write_positions(program, rows);
  write_draws(program, rows);
  if (!decode.captured) decode.graph.capture(compute_, [&] { issue_decode(program); });
  decode.captured = true;
  decode.graph.launch(compute_);
  program.block->replayed = true;
  program.block->local.tokens = receive(program);
  return true;
}

/// A decode pass on one stream, without events.
void DeviceBackend::issue_decode(Executor::BoundSchedule& program) {
  copy_fields(program, 0, program.source->rows(0), compute_.view());
  for (int i = 0; i < program.norm; ++i)
    if (program.schedule->list[static_cast<std::size_t>(i)].op == shard::Op::forward) issue_forward(program, i);
  copy_result(program);
}

/// The logits, or the next token of each row, to pinned memory.
void DeviceBackend::copy_result(Executor::BoundSchedule& program) {
  const TensorView logits = logits_of(program);
  if (program.source->wants_logits() || program.chosen == nullptr)
    return copy_bytes(program.host_logits, logits.data, logits.nbytes(), compute_.view());
  const TensorView chosen(program.chosen, DType::i32, Shape{logits.shape[0]}, device_);
  if (const kernels::SampleRule* rule = program.source->sampling()) {
    const TensorView draws(program.draws, DType::f64, Shape{logits.shape[0]}, device_);
    copy_bytes(draws.data, program.host_draws, draws.nbytes(), compute_.view());
    kernels::sample({.x = logits, .draws = draws, .rule = *rule, .out = chosen}, compute_.view());
  } else {
    kernels::argmax({.x = logits, .out = chosen}, compute_.view());
  }
  copy_bytes(program.host_chosen, chosen.data, chosen.nbytes(), compute_.view());
}

/// Waits for what copy_result has copied: the host chooses the next tokens, or gets them. If a draw is undecided, it
/// gets the logits after all.
std::int64_t DeviceBackend::receive(Executor::BoundSchedule& program) {
  const auto await = [&] {
    compute_.record(program.logits_copied);
    program.logits_copied.wait();
  };
  await();
  BatchSource& source = *program.source;
  const TensorView logits = logits_of(program);
  if (!source.wants_logits() && program.chosen != nullptr) {
    const std::span<const std::int32_t> ids(program.host_chosen, static_cast<std::size_t>(logits.shape[0]));
    if (std::ranges::find(ids, kernels::undecided_token) == ids.end()) return source.take_chosen(ids);
    copy_bytes(program.host_logits, logits.data, logits.nbytes(), compute_.view());
    await();
  }
  return source.take({reinterpret_cast<float*>(program.host_logits), static_cast<std::size_t>(logits.numel())});
}

std::int64_t DeviceBackend::take(Executor::BoundSchedule& program) {
  write_draws(program, program.source->rows(0));
  copy_result(program);
  return receive(program);
}

void DeviceBackend::norm(Executor::BoundSchedule& program) {
  StepBlock& block = *program.block;
  const bool passes_count = program.phase != models::Phase::logits;
  shard::StepSums mine;
  mine.tokens = block.local.tokens;
  mine.flags = block.sums.flags;
  parts_.manager->issue_norm(
      mine, passes_count ? shard::ShardManager::Counts::on_device : shard::ShardManager::Counts::of_host, program.step);
}

bool DeviceBackend::times_waits(const Executor::BoundSchedule& program) const {
  return !program.waits.empty() && (program.block->times_waits || trace_.on());
}

/// With timed events before and after.
void DeviceBackend::wait_for(Executor::BoundSchedule& program, int instruction) {
  Event& event = program.events[static_cast<std::size_t>(instruction)];
  if (!times_waits(program)) return compute_.wait(event);
  Executor::BoundSchedule::Wait& wait = program.waits[program.waited++];
  TESSERA_ASSERT(wait.instruction == instruction, "a wait for instruction %d instead of %d", instruction,
                 wait.instruction);
  wait.from.record(compute_);
  compute_.wait(event);
  wait.to.record(compute_);
}

void DeviceBackend::enqueue(Executor::BoundSchedule& program, int instruction) {
  Stream& stream = this->stream(program.schedule->list[static_cast<std::size_t>(instruction)].stream);
  if (&stream == host_.get())
    return stream.enqueue(trace_.on() ? &Backend::execute_with_span : &Backend::execute, &program, instruction);
  const std::size_t span = 2 * static_cast<std::size_t>(instruction);
  if (trace_.on()) program.spans[span].record(stream);
  stream.enqueue(&DeviceBackend::execute, &program, instruction);
  if (trace_.on()) program.spans[span + 1].record(stream);
}

StepPointers DeviceBackend::pointers(const Executor::BoundSchedule& program) {
  StepPointers pointers{.scalars = program.step,
                        .sums = parts_.manager->loss_sums(),
                        .extra = parts_.manager->extra_sums(),
                        .positions = program.source->positions() != nullptr ? program.buffers.positions() : nullptr};
  if (program.step == nullptr) return pointers;
  pointers.loss_scale = &program.step->loss_scale;
  pointers.gradient_scale = &program.step->gradient_scale;
  return pointers;
}

/// Waits until the device is idle, then reads its clock and the host's together.
void DeviceBackend::begin_spans(Executor::BoundSchedule& program) {
  synchronize();
  const std::size_t wanted = 2 * program.schedule->list.size() + 1;
  program.spans.reserve(wanted);
  while (program.spans.size() < wanted) program.spans.emplace_back(device_);
  program.spans.back().record(compute_);
  program.began_s = trace_.now();
}

void DeviceBackend::take_spans(Executor::BoundSchedule& program) {
  const auto at = [&](const TimedEvent& event) {
    return program.began_s + TimedEvent::seconds(program.spans.back(), event);
  };
  std::size_t waited = 0;
  for (int i = 0; i < static_cast<int>(program.schedule->list.size()); ++i) {
    const auto& instruction = program.schedule->list[static_cast<std::size_t>(i)];
    const bool computes = instruction.stream == shard::StreamId::compute;
    for (std::size_t k = 0; computes && !program.waits.empty() && k < instruction.after.size(); ++k) {
      const Executor::BoundSchedule::Wait& wait = program.waits[waited++];
      trace_.add({program.schedule, wait.instruction, true, at(wait.from), at(wait.to)}, shard::StreamId::compute);
    }
    if (instruction.op == shard::Op::release || instruction.stream == shard::StreamId::host) continue;
    const std::size_t span = 2 * static_cast<std::size_t>(i);
    trace_.add({program.schedule, i, false, at(program.spans[span]), at(program.spans[span + 1])}, instruction.stream);
  }
}

/// The first update after norm reads its sums.
const kernels::StepScalars* DeviceBackend::host_scalars(const Executor::BoundSchedule& program) {
  if (!program.schedule->updates_before_norm && !decided_) parts_.manager->decide(host_step_);
  decided_ = true;
  return &host_step_;
}

void DeviceBackend::end(Executor::BoundSchedule& program) {
  if (host_ != nullptr) host_->synchronize();  // its updates use what the caller owns
  for (auto& [stream, event] : {std::pair{fetch_.get(), &fetched_}, std::pair{store_.get(), &stored_}}) {
    if (stream == nullptr) continue;
    stream->record(*event);
    compute_.wait(*event);
  }
  compute_.record(ended_);
  if (trace_.on() || program.norm < 0) synchronize();
  if (trace_.on()) take_spans(program);
  if (program.norm < 0) return;
  program.events[static_cast<std::size_t>(program.norm)].wait();
  if (times_waits(program)) {
    program.waits.back().to.wait();  // all timed events before it are done
    for (const Executor::BoundSchedule::Wait& wait : program.waits)
      program.block->comm_seconds += TimedEvent::seconds(wait.from, wait.to);
  }
  program.block->sums.extra = program.block->extra;
  const int bad_unit = parts_.manager->read_norm(program.block->sums);
  if (program.block->warmup) return synchronize();
  if (program.phase == models::Phase::train) check_finite(program, bad_unit);
}

}  // namespace tessera::exec
