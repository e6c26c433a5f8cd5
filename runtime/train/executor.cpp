#include "runtime/train/executor.hpp"

#include <algorithm>
#include <bit>
#include <cmath>

#include "kernels/balance.hpp"
#include "kernels/gemm_choice.hpp"
#include "kernels/reduce.hpp"
#include "runtime/base/transfer.hpp"
#include "runtime/plan/activations.hpp"
#include "runtime/train/bound_schedule.hpp"

namespace tessera::train {

using shard::Op;
using shard::StreamId;

static TensorView bytes(std::byte* data, std::size_t n, Device device) {
  return {data, DType::u8, Shape{static_cast<std::int64_t>(n)}, device};
}

/// Fills a gradient with -0, which adds nothing. bf16 and fp16 have the same -0, 0x8000, and are filled in pairs (a
/// unit's size is even).
static void fill_neutral(std::byte* data, std::size_t n, DType dtype, StreamView stream) {
  const float word = dtype == DType::f32 ? kernels::sum_identity : std::bit_cast<float>(std::uint32_t{0x80008000});
  kernels::fill(reinterpret_cast<float*>(data), n / sizeof(float), word, stream);
}

/// On a device, a transport that blocks the host needs a thread that enqueues its collectives.
static Stream::Mode comm_mode(const Executor::Parts& parts) {
  const plan::RunSpec& spec = parts.plan->spec;
  const bool alone = spec.strategy.mesh.world() == 1;
  if (spec.device == host_device || parts.comm_streams != Stream::Mode::threaded) return parts.comm_streams;
  return alone || !spec.topology.staged ? Stream::Mode::immediate : Stream::Mode::threaded;
}

Executor::Executor(const Parts& parts)
    : parts_(parts),
      device_(parts.plan->spec.device),
      compute_("compute", Stream::Mode::immediate, device_, Priority::normal) {
  const bool one_stream = on_device() || parts_.comm_streams == Stream::Mode::threaded;
  comm_ = std::make_unique<Stream>(one_stream ? "comm" : "gather", comm_mode(parts_), device_, Priority::high);
  if (!one_stream) reduce_ = std::make_unique<Stream>("reduce", parts_.comm_streams);
  const auto replicates = [](const shard::Instruction& in) { return in.stream == StreamId::replicate; };
  if (!on_device() && std::ranges::any_of(parts_.plan->main().list, replicates))
    replicate_ = std::make_unique<Stream>("replicate", parts_.comm_streams);
  if (on_device()) {
    copy_ = std::make_unique<Stream>("copy", Stream::Mode::immediate, device_, Priority::normal);
    parts_.manager->run_on(comm_->view());
    kernels::set_gemm_workspace(compute_.view(), parts_.arena->data(plan::gemm_workspace_name));
  }
  streams_[static_cast<int>(StreamId::compute)] = &compute_;
  streams_[static_cast<int>(StreamId::gather)] = comm_.get();
  streams_[static_cast<int>(StreamId::reduce)] = reduce_ ? reduce_.get() : comm_.get();
  streams_[static_cast<int>(StreamId::replicate)] = replicate_ ? replicate_.get() : comm_.get();
}

Executor::~Executor() {
  if (!on_device()) return;
  try {
    kernels::set_gemm_workspace(compute_.view(), nullptr);
  } catch (const std::exception&) {  // the device is gone
  }
}

double Executor::now() const { return std::chrono::duration<double>(Clock::now() - origin_).count(); }

void Executor::run(BoundSchedule& program, BatchSource& source, StepBlock& block) {
  program.source = &source;
  program.block = &block;
  const auto& list = program.schedule->list;
  TESSERA_ASSERT(on_device() || !block.warmup, "a warm-up step on the host");
  if (on_device()) begin_on_device(program);
  for (int i = 0; i < static_cast<int>(list.size()); ++i) {
    const auto& instruction = list[static_cast<std::size_t>(i)];
    Stream& stream = *streams_[static_cast<int>(instruction.stream)];
    for (const int before : instruction.after) {
      if (&stream == &compute_) wait_for(program, before);
      else stream.wait(program.events[static_cast<std::size_t>(before)]);
    }
    // Here and not in norm(), which runs on the communication thread.
    if (instruction.op == Op::norm && block.callback != nullptr) block.sums.flags = block.callback->flags();
    const bool timed = tracing_ && on_device();
    if (timed) program.spans[2 * static_cast<std::size_t>(i)].record(stream);
    stream.enqueue(&Executor::step_into, &program, i);
    if (timed) program.spans[2 * static_cast<std::size_t>(i) + 1].record(stream);
    stream.record(program.events[static_cast<std::size_t>(i)]);
  }
  if (on_device()) return end_on_device(program);
  for (Stream* stream : {comm_.get(), reduce_.get(), replicate_.get()})
    if (stream != nullptr) stream->synchronize();
}

/// The compute stream waits; the time counts as communication that did not overlap.
void Executor::wait_for(BoundSchedule& program, int instruction) {
  Event& event = program.events[static_cast<std::size_t>(instruction)];
  if (on_device()) return wait_on_device(program, instruction);
  if (event.passed()) return event.wait();  // rethrows
  const double begin = now();
  event.wait();
  const double end = now();
  program.block->comm_seconds += end - begin;
  mark({&program, instruction, true, begin, end}, StreamId::compute);
}

void Executor::step_into(void* program, std::int64_t instruction) {
  auto& p = *static_cast<BoundSchedule*>(program);
  p.executor->execute(p, static_cast<int>(instruction));
}

void Executor::execute(BoundSchedule& program, int i) {
  const auto& instruction = program.schedule->list[static_cast<std::size_t>(i)];
  const auto& step = program.steps[static_cast<std::size_t>(i)];
  const bool marks = tracing_ && !on_device();
  const double begin = marks ? now() : 0;
  switch (instruction.op) {
    case Op::gather: parts_.manager->gather(instruction, step.slot); break;
    case Op::release: return;  // only orders instructions
    case Op::forward:
    case Op::recompute: forward(program, i); break;
    case Op::backward: backward(program, i); break;
    case Op::reduce_scatter: parts_.manager->reduce_scatter(instruction, step.slot, step.sum); break;
    case Op::all_reduce: parts_.manager->all_reduce(instruction, step.slot, step.sum); break;
    case Op::norm: on_device() ? issue_norm(program) : norm(program); break;
    case Op::update:
      if (program.block->skipped || program.block->warmup) break;  // the state stays unchanged
      if (program.block->callback != nullptr) program.block->callback->before_update(instruction.unit);
      parts_.optimizer->update(parts_.manager->update_view(instruction.unit), on_device() ? program.step : &step_,
                               compute_.view());
      break;
  }
  if (marks) mark({&program, i, false, begin, now()}, instruction.stream);
}

models::Batch Executor::batch(const BoundSchedule& program, int micro) const {
  const std::int64_t rows = program.source->rows(micro), tokens = program.source->tokens();
  const BatchMemory& buffers = program.current_tokens;
  models::Batch batch;
  batch.ids = {buffers.ids(), Shape{rows, tokens}, device_};
  batch.loss_scale =
      on_device() ? (program.step != nullptr ? &program.step->loss_scale : nullptr) : &program.block->loss_scale;
  batch.sums = on_device() ? parts_.manager->loss_sums() : &program.block->local;
  const auto& model = *parts_.plan->spec.model;
  if (program.phase == models::Phase::logits) {
    batch.logits = {program.logits, stat_dtype(model.dtype), Shape{rows, model.vocab}, device_};
    const std::int32_t* positions = program.source->positions();
    if (positions != nullptr)
      batch.positions = {on_device() ? buffers.positions() : positions, Shape{rows, tokens}, device_};
    batch.lengths = program.source->lengths();
  } else {
    for (const models::BatchFieldInfo& field : models::batch_fields)
      if (std::byte* data = buffers[field.field])
        batch.*field.tensor = {data, field.dtype, Shape{rows, tokens}, device_};
  }
  if (program.phase == models::Phase::train)
    batch.dropout = {program.block->seed, program.block->step, program.source->first_row(micro) * tokens};
  if (program.router != nullptr)
    batch.router = {program.router, Shape{model.router.layers, 2, model.router.experts}, device_};
  return batch;
}

/// Loads a micro-batch into the buffers of the kernels.
void Executor::load(BoundSchedule& program, int micro, std::int64_t rows) {
  const double begin = now();
  BatchSource& source = *program.source;
  const BatchMemory to = (on_device() ? program.pinned : program.buffers).from(micro * program.tokens_per_micro);
  if (program.phase == models::Phase::logits) {
    BatchMemory ids;
    ids.set(models::BatchField::ids, to[models::BatchField::ids]);
    source.load(0, ids);
  } else {
    source.load(micro, to);
  }
  program.block->data_seconds += now() - begin;
  if (on_device()) load_to_device(program, micro, rows);
}

void Executor::forward(BoundSchedule& program, int i) {
  const auto& instruction = program.schedule->list[static_cast<std::size_t>(i)];
  const auto& step = program.steps[static_cast<std::size_t>(i)];
  BatchSource& source = *program.source;
  const std::int64_t rows = source.rows(std::max(instruction.micro, 0)), tokens = source.tokens();
  if (rows == 0) return;
  const int micro = std::max(instruction.micro, 0);
  program.current_tokens = program.buffers.from(micro * program.tokens_per_micro);
  if (instruction.module == 0 && instruction.op == Op::forward) load(program, micro, rows);
  const auto& model = *parts_.plan->spec.model;
  const models::Batch batch = this->batch(program, micro);
  const models::BatchShape shape{rows, tokens, device_};
  const Shape activation{rows, tokens, model.hidden};  // (B, T, C)
  models::ForwardArgs args;
  args.phase = step.phase;
  args.shape = shape;
  args.params = step.params;
  if (step.x) args.x = {step.x, model.dtype, activation, device_};
  if (step.y) args.y = {step.y, model.dtype, activation, device_};
  if (step.saved) args.saved = bytes(step.saved, step.module->saved_bytes(shape, model.dtype), device_);
  args.workspace = bytes(program.workspace, step.module->workspace_bytes(shape, model.dtype, step.phase), device_);
  args.stream = compute_.view();
  args.batch = &batch;
  args.cache = step.cache;
  step.module->forward(args);
  if (program.phase == models::Phase::logits && step.y == nullptr)
    program.block->local.tokens =
        on_device() ? take_from_device(program, batch.logits)
                    : source.take({batch.logits.as<float>(), static_cast<std::size_t>(batch.logits.numel())});
}

void Executor::backward(BoundSchedule& program, int i) {
  const auto& instruction = program.schedule->list[static_cast<std::size_t>(i)];
  const auto& step = program.steps[static_cast<std::size_t>(i)];
  const std::int64_t rows = program.source->rows(instruction.micro), tokens = program.source->tokens();
  if (rows == 0) {  // no rows: the gradient is -0, which adds nothing
    for (const auto& gradient : step.gradients)
      fill_neutral(gradient.data, gradient.bytes, gradient.dtype, compute_.view());
    return;
  }
  for (const auto& gap : step.gaps) clear_bytes(gap.data, gap.bytes, compute_.view());
  program.current_tokens = program.buffers.from(instruction.micro * program.tokens_per_micro);
  const auto& model = *parts_.plan->spec.model;
  const models::Batch batch = this->batch(program, instruction.micro);
  const models::BatchShape shape{rows, tokens, device_};
  const Shape activation{rows, tokens, model.hidden};  // (B, T, C)
  models::BackwardArgs args;
  args.shape = shape;
  args.params = step.params;
  args.dparams = step.dparams;
  args.accumulate = step.accumulate;
  if (step.x) args.x = {step.x, model.dtype, activation, device_};
  if (step.saved) args.saved = bytes(step.saved, step.module->saved_bytes(shape, model.dtype), device_);
  args.workspace =
      bytes(program.workspace, step.module->workspace_bytes(shape, model.dtype, models::Phase::train), device_);
  args.stream = compute_.view();
  if (step.y) args.dy = {program.dx, model.dtype, activation, device_};
  if (step.wants_dx) args.dx = {program.dx, model.dtype, activation, device_};
  args.batch = &batch;
  step.module->backward(args);
  if (step.y == nullptr) add_balance(program, batch);  // the first backward: all layers have chosen their experts
}

void Executor::add_balance(const BoundSchedule& program, const models::Batch& batch) const {
  StepBlock& block = *program.block;
  if (block.balance.empty()) return;
  kernels::add_balance_losses({.of = models::balance_of(batch),
                               .gradient_scale = on_device() ? &program.step->gradient_scale : &block.gradient_scale,
                               .unit = StepBlock::balance_unit,
                               .sums = on_device() ? parts_.manager->extra_sums() : block.balance.data()},
                              compute_.view());
}

void Executor::norm(BoundSchedule& program) {
  StepBlock& block = *program.block;
  block.sums.loss = block.local.loss;
  block.sums.tokens = block.local.tokens;
  block.sums.correct = block.local.correct;
  block.sums.extra = block.balance;
  const int bad_unit = parts_.manager->norm(block.sums);
  if (program.phase != models::Phase::train) return;
  check_finite(program, bad_unit);
  const double limit = block.max_grad_norm;
  const double clip = limit > 0 ? std::min(1.0, limit / (block.grad_norm + 1e-6)) : 1.0;
  step_.optimizer = block.optimizer;
  step_.decision.clip = static_cast<double>(static_cast<float>(clip / block.gradient_scale));
}

/// Computes the gradient norm of the summed counters. If anything is not finite, skips the step or ends the run.
void Executor::check_finite(BoundSchedule& program, int bad_unit) {
  StepBlock& block = *program.block;
  block.grad_norm = std::sqrt(block.sums.norm2.value()) / block.gradient_scale;
  const bool bad = block.sums.loss.nonfinite() || bad_unit >= 0;
  block.skipped = bad && block.skips;
  if (bad && !block.skips) {
    const std::string unit = bad_unit >= 0 ? program.schedule->units[static_cast<std::size_t>(bad_unit)].name
                                           : program.schedule->modules.back().name;
    throw Error(
        ExitCode::diverged,
        strfmt("the %s of unit %s is not finite", block.sums.loss.nonfinite() ? "loss" : "gradient", unit.c_str()),
        strfmt("step %ld", block.step), "Lower the learning rate, raise the warm-up, or check the data near this step");
  }
}

const float* Executor::logits(const BoundSchedule& program) {
  return reinterpret_cast<const float*>(program.pinned_logits != nullptr ? program.pinned_logits : program.logits);
}

void Executor::start_trace(int runs) {
  const std::size_t capacity = static_cast<std::size_t>(runs) * parts_.plan->main().list.size() * 2;
  for (std::vector<Mark>& marks : marks_) {
    marks.clear();
    marks.reserve(capacity);
  }
  origin_ = Clock::now();
  tracing_ = true;
}

void Executor::mark(const Mark& mark, StreamId stream) {
  auto& marks = marks_[static_cast<std::size_t>(stream)];
  if (tracing_ && marks.size() < marks.capacity()) marks.push_back(mark);
}

std::vector<TraceSpan> Executor::take_trace() {
  tracing_ = false;
  std::vector<TraceSpan> spans;
  for (const std::vector<Mark>& marks : marks_)
    for (const Mark& mark : marks) {
      const auto& schedule = *mark.program->schedule;
      const auto& instruction = schedule.list[static_cast<std::size_t>(mark.instruction)];
      std::string name = (mark.wait ? "wait " : "") + shard::instruction_name(schedule, instruction);
      spans.push_back(
          {std::move(name), mark.wait ? 0 : static_cast<int>(instruction.stream), mark.begin_s, mark.end_s});
    }
  return spans;
}

}  // namespace tessera::train
