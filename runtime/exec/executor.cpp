// SPDX-License-Identifier: Apache-2.0
#include "runtime/exec/executor.hpp"

#include <algorithm>
#include <array>
#include <bit>

#include "kernels/balance.hpp"
#include "kernels/reduce.hpp"
#include "runtime/base/transfer.hpp"
#include "runtime/exec/backend.hpp"
#include "runtime/plan/activations.hpp"
#include "runtime/plan/exchanges.hpp"

namespace tessera::exec {

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

/// What a module saves: its one part, or two.
template <class Args>
static void set_saved(Args& args, const Executor::BoundSchedule::Step& step, DType dtype, Device device) {
  if (step.saved == nullptr) return;
  const models::SavedBytes sizes = step.module->split_saved_bytes(args.shape, dtype);
  args.saved = bytes(step.saved, step.kept != nullptr ? sizes.recomputed : sizes.total(), device);
  if (step.kept != nullptr) args.kept = bytes(step.kept, sizes.kept, device);
}

namespace {

/// The values that a stage sees, and their gradients, in a micro-batch of this shape. Does not allocate.
class ValueViews {
 public:
  ValueViews(const Executor::BoundSchedule::Step& step, models::BatchShape shape, DType dtype, Device device)
      : count_(step.values.size()), gradients_(step.value_gradients.size()) {
    TESSERA_ASSERT(count_ <= most_values, "%zu values of a module", count_);
    for (std::size_t v = 0; v < count_; ++v)
      views_[v] = bytes(step.values[v], step.module->value_bytes(static_cast<int>(v), shape, dtype), device);
    for (std::size_t v = 0; v < gradients_; ++v)
      views_[count_ + v] =
          bytes(step.value_gradients[v], step.module->value_gradient_bytes(static_cast<int>(v), shape, dtype), device);
  }
  [[nodiscard]] std::span<const TensorView> of_values() const { return {views_.data(), count_}; }
  [[nodiscard]] std::span<const TensorView> of_gradients() const { return {views_.data() + count_, gradients_}; }

 private:
  static constexpr std::size_t most_values = 16;
  std::array<TensorView, 2 * most_values> views_;
  std::size_t count_, gradients_;
};

}  // namespace

Executor::Executor(const Parts& parts)
    : parts_(parts),
      device_(parts.plan->spec.device),
      backend_(Backend::make(parts, trace_)),
      compute_(backend_->stream(StreamId::compute).view()) {}

Executor::~Executor() = default;

void Executor::synchronize() { backend_->synchronize(); }

void Executor::run(BoundSchedule& program, BatchSource& source, StepBlock& block) {
  program.source = &source;
  program.block = &block;
  dequantized_ = nullptr;
  const auto& list = program.schedule->list;
  backend_->begin(program);
  const int first = backend_->replay(program) ? program.norm : 0;
  for (int i = first; i < static_cast<int>(list.size()); ++i) {
    const auto& instruction = list[static_cast<std::size_t>(i)];
    Stream& stream = backend_->stream(instruction.stream);
    const bool computes = &stream == &backend_->stream(StreamId::compute);  // without a device updates of the host too
    for (const int before : instruction.after) {
      if (computes) backend_->wait_for(program, before);
      else stream.wait(program.events[static_cast<std::size_t>(before)]);
    }
    // Here and not in the backend's norm(), which runs on the communication thread.
    if (instruction.op == Op::norm && block.callback != nullptr) block.sums.flags = block.callback->flags();
    backend_->enqueue(program, i);
    stream.record(program.events[static_cast<std::size_t>(i)]);
  }
  backend_->end(program);
}

void Executor::execute(BoundSchedule& program, int i) {
  const auto& instruction = program.schedule->list[static_cast<std::size_t>(i)];
  const auto& step = program.steps[static_cast<std::size_t>(i)];
  switch (instruction.op) {
    case Op::gather: parts_.manager->gather(instruction, step.slots); break;
    case Op::release: break;  // only orders instructions
    case Op::forward:
    case Op::recompute: forward(program, i); break;
    case Op::backward: backward(program, i); break;
    case Op::reduce_scatter: parts_.manager->reduce_scatter(instruction, step.slots); break;
    case Op::all_reduce: parts_.manager->all_reduce(instruction, step.slots); break;
    case Op::norm: backend_->norm(program); break;
    case Op::update: update(program, instruction, step.slots); break;
    case Op::fetch:
      if (is_activation(instruction.state)) return move_activations(program, i);
      return parts_.manager->fetch(instruction, step.slots, backend_->stream(StreamId::fetch).view());
    case Op::store:
      if (is_activation(instruction.state)) return move_activations(program, i);
      return parts_.manager->store(instruction, step.slots, backend_->stream(StreamId::store).view());
    case Op::exchange: return exchange(program, i);
  }
}

/// Of the rows that the micro-batch has, as on every rank of the group. One whose micro-batch has another shape calls
/// another collective, which the communicator finds out.
void Executor::exchange(const BoundSchedule& program, int i) {
  const shard::Schedule& schedule = *program.schedule;
  const auto& instruction = schedule.list[static_cast<std::size_t>(i)];
  const auto& step = program.steps[static_cast<std::size_t>(i)];
  const auto& model = *parts_.plan->spec.model;
  const models::BatchShape shape = shape_of(program, step.phase, instruction.micro);
  parts_.manager->exchange({.kind = schedule.exchange_kind(instruction),
                            .axes = schedule.exchange_of(instruction).axes,
                            .label = {"exchange", schedule.use_of(instruction).name.c_str(), instruction.micro},
                            .from = step.values[0],
                            .to = step.values[1],
                            .bytes = plan::exchanged_bytes(model, schedule, instruction, shape),
                            .dtype = model.dtype},
                           backend_->stream(instruction.stream).view());
}

/// Of the rows that the micro-batch has.
void Executor::move_activations(const BoundSchedule& program, int i) {
  const auto& instruction = program.schedule->list[static_cast<std::size_t>(i)];
  const auto& step = program.steps[static_cast<std::size_t>(i)];
  if (program.source->rows(instruction.micro) == 0) return;
  const std::size_t moved = plan::moved_activation_bytes(parts_.plan->spec, *program.schedule, instruction,
                                                         shape_of(program, models::Phase::train, instruction.micro));
  const bool stores = instruction.op == Op::store;
  copy_bytes(stores ? step.home : step.slots.stage, stores ? step.slots.stage : step.home, moved,
             backend_->stream(instruction.stream).view());
}

void Executor::update(BoundSchedule& program, const shard::Instruction& instruction,
                      const shard::ShardManager::SlotMemory& memory) {
  const bool on_host = instruction.stream == StreamId::host;
  // The state stays unchanged. A device's kernels of a warm-up step are issued, and return at once: their flag is set.
  if (program.block->skipped || (program.block->warmup && on_host)) return;
  if (program.block->callback != nullptr) program.block->callback->before_update(instruction.unit);
  const shard::UpdateView& view = parts_.manager->update_view(instruction, memory);
  const double begin = trace_.now();
  parts_.optimizer->update(view, on_host ? backend_->host_scalars(program) : backend_->pointers(program).scalars,
                           on_host ? host_stream : compute_);
  if (on_host) parts_.manager->copy_updated(instruction.unit, view);
  program.block->update_seconds += trace_.now() - begin;
}

models::Batch Executor::batch(const BoundSchedule& program, int micro, int instance) {
  const std::int64_t rows = program.source->rows(micro), tokens = program.source->tokens(micro),
                     sequences = program.source->sequences(micro);
  const BatchMemory& buffers = program.current_tokens;
  const StepPointers pointers = backend_->pointers(program);
  models::Batch batch;
  batch.ids = {buffers.ids(), Shape{rows, tokens}, device_};
  if (program.reference != nullptr) batch.reference = {program.reference, DType::f32, Shape{rows, tokens}, device_};
  const bool is_reference = instance > 0;  // it has no gradients, and adds nothing to the step's sums
  if (!is_reference) {
    batch.loss_scale = pointers.loss_scale;
    batch.sums = pointers.sums;
  }
  const auto& model = *parts_.plan->spec.model;
  if (program.phase == models::Phase::logits) {
    batch.logits = logits_of(program);
    if (pointers.positions != nullptr) batch.positions = {pointers.positions, Shape{rows, tokens}, device_};
    batch.lengths = program.source->lengths();
  } else {
    using Per = models::BatchFieldInfo::Per;
    const models::RowSharing sharing = parts_.plan->spec.row_sharing();
    for (const models::BatchFieldInfo& field : models::batch_fields)
      if (std::byte* data = buffers[field.field])
        batch.*field.tensor = {
            data, field.dtype,
            field.per == Per::sequence ? Shape{sequences} : Shape{rows, tokens * field.ranks_of(sharing)}, device_};
    if (batch.document_starts) batch.document_groups = program.source->document_groups(micro);
  }
  batch.row_begins = program.source->row_begins(micro);
  batch.tensor_rank = parts_.plan->spec.strategy.mesh.coordinate(parts_.plan->spec.rank, Axis::tensor);
  if (is_reference) return batch;
  if (program.sequences != nullptr)
    batch.sequence_values = {
        program.sequences + static_cast<std::size_t>(micro * parts_.plan->spec.train_sequences()) * sizeof(double),
        DType::f64, Shape{sequences}, device_};
  if (model.num_metrics > 0 && program.phase != models::Phase::logits) {
    batch.metrics = pointers.extra + model.router.num_losses();
    batch.samples = sequences / parts_.plan->spec.sequences;
  }
  if (program.phase == models::Phase::train) {
    const plan::RunSpec& spec = parts_.plan->spec;
    const std::int64_t planned = spec.row_stride > 0 ? spec.row_stride : spec.tokens, begin = batch.row_begins[0],
                       second = batch.row_begins[1] - begin, part = tokens * spec.tensor_ranks();
    batch.dropout = {.seed = program.block->seed,
                     .step = program.block->step,
                     .first_token = program.source->first_row(micro) * planned + begin,
                     .row_tokens = part,
                     .row_stride = planned,
                     .second_half = second == part / 2 ? 0 : second,
                     .skipped = batch.tensor_rank * rows * tokens,
                     .row_lengths = program.source->row_lengths(micro)};
  }
  if (program.router != nullptr)
    batch.router = {program.router, Shape{model.router.layers, 2, model.router.experts}, device_};
  if (program.router != nullptr && parts_.plan->spec.row_ranks() > 1)
    batch.counted = {program.router + model.router.num_statistics(), Shape{2}, device_};
  return batch;
}

/// The shape of a micro-batch; end to end, no document is longer than T, nor is it where ranks have parts of rows.
models::BatchShape Executor::shape_of(const BoundSchedule& program, models::Phase phase, int micro) const {
  const std::int64_t rows = program.source->rows(micro), tokens = program.source->tokens(micro);
  const plan::RunSpec& spec = parts_.plan->spec;
  const bool documents = spec.packed && program.phase != models::Phase::logits,
             flat = documents && spec.flat_tokens > 0;
  return {rows,
          tokens,
          device_,
          flat || spec.context_ranks() > 1 ? spec.tokens : 0,
          phase == models::Phase::train && spec.saves_outputs(),
          documents,
          program.phase == models::Phase::logits && spec.tensor_ranks() > 1,
          flat ? program.source->sequences(micro) : 0};
}

/// Loads a micro-batch into host memory.
void Executor::load(BoundSchedule& program, int micro) {
  const double begin = trace_.now();
  BatchSource& source = *program.source;
  const BatchMemory to =
      program.host_buffers.from(micro * program.tokens_per_micro, micro * program.sequences_per_micro);
  if (program.phase == models::Phase::logits) {
    BatchMemory ids;
    ids.set(models::BatchField::ids, to[models::BatchField::ids]);
    source.load(0, ids);
  } else {
    source.load(micro, to);
  }
  program.block->data_seconds += trace_.now() - begin;
}

TensorView Executor::logits_of(const BoundSchedule& program) const {
  const auto& model = *parts_.plan->spec.model;
  return {program.logits, stat_dtype(model.dtype), Shape{program.source->rows(0), model.vocab}, device_};
}

/// Frozen matrices stay what they are during a run: of consecutive instructions of a module the first dequantizes.
void Executor::dequantize(const BoundSchedule& program, int i) {
  const auto& step = program.steps[static_cast<std::size_t>(i)];
  if (step.quantized.empty() || dequantized_ == step.module) return;
  for (const kernels::DequantizeArgs& matrix : step.quantized) kernels::dequantize(matrix, compute_);
  dequantized_ = step.module;
}

void Executor::forward(BoundSchedule& program, int i) {
  const auto& instruction = program.schedule->list[static_cast<std::size_t>(i)];
  const int micro = std::max(instruction.micro, 0);
  const std::int64_t rows = program.source->rows(micro);
  if (rows == 0) return;
  const int first_instance = program.schedule->references.empty() ? 0 : 1;
  const bool begins = instruction.module == 0 && instruction.part == 0 && instruction.instance == first_instance &&
                      instruction.op == Op::forward;
  if (begins) {
    load(program, micro);
    backend_->copy_batch(program, micro, rows);
  }
  issue_forward(program, i);
  const bool last_stage = instruction.part + 1 == program.schedule->use_of(instruction).num_stages();
  if (program.phase == models::Phase::logits && last_stage && program.steps[static_cast<std::size_t>(i)].y == nullptr)
    program.block->local.tokens = backend_->take(program);
}

/// The module's kernels, and nothing else: of a decode pass they may be captured.
void Executor::issue_forward(BoundSchedule& program, int i) {
  const auto& instruction = program.schedule->list[static_cast<std::size_t>(i)];
  const auto& step = program.steps[static_cast<std::size_t>(i)];
  const int micro = std::max(instruction.micro, 0);
  const std::int64_t rows = program.source->rows(micro), tokens = program.source->tokens(micro);
  program.current_tokens = program.buffers.from(micro * program.tokens_per_micro, micro * program.sequences_per_micro);
  const auto& model = *parts_.plan->spec.model;
  const models::Batch batch = this->batch(program, micro, instruction.instance);
  const models::BatchShape shape = shape_of(program, step.phase, micro);
  const Shape activation{rows, tokens, instruction.instance > 0 ? model.reference_hidden : model.hidden};  // (B, T, C)
  models::ForwardArgs args;
  args.phase = step.phase;
  args.shape = shape;
  args.params = step.params;
  if (step.x) args.x = {step.x, model.dtype, activation, device_};
  if (step.y) args.y = {step.y, model.dtype, activation, device_};
  set_saved(args, step, model.dtype, device_);
  args.workspace = bytes(program.workspace, step.module->workspace_bytes(shape, model.dtype, step.phase), device_);
  args.recompute = instruction.op == Op::recompute;
  args.writes_y = !args.recompute;
  args.stream = compute_;
  args.batch = &batch;
  args.cache = step.cache;
  args.stage = instruction.part;
  const ValueViews values(step, shape, model.dtype, device_);
  args.values = values.of_values();
  dequantize(program, i);
  step.module->forward(args);
}

void Executor::backward(BoundSchedule& program, int i) {
  const auto& instruction = program.schedule->list[static_cast<std::size_t>(i)];
  const auto& step = program.steps[static_cast<std::size_t>(i)];
  const std::int64_t rows = program.source->rows(instruction.micro), tokens = program.source->tokens(instruction.micro);
  if (rows == 0) {  // no rows: the gradient is -0, which adds nothing
    for (const auto& gradient : step.gradients) fill_neutral(gradient.data, gradient.bytes, gradient.dtype, compute_);
    return;
  }
  for (const auto& gap : step.gaps) clear_bytes(gap.data, gap.bytes, compute_);
  program.current_tokens = program.buffers.from(instruction.micro * program.tokens_per_micro,
                                                instruction.micro * program.sequences_per_micro);
  const auto& model = *parts_.plan->spec.model;
  const models::Batch batch = this->batch(program, instruction.micro, 0);
  const models::BatchShape shape = shape_of(program, models::Phase::train, instruction.micro);
  const Shape activation{rows, tokens, model.hidden};  // (B, T, C)
  models::BackwardArgs args;
  args.shape = shape;
  args.params = step.params;
  args.dparams = step.dparams;
  args.accumulate = step.accumulate;
  if (step.x) args.x = {step.x, model.dtype, activation, device_};
  set_saved(args, step, model.dtype, device_);
  args.workspace =
      bytes(program.workspace, step.module->workspace_bytes(shape, model.dtype, models::Phase::train), device_);
  args.stream = compute_;
  if (step.dy) args.dy = {step.dy, model.dtype, activation, device_};
  if (step.dx) args.dx = {step.dx, model.dtype, activation, device_};
  args.batch = &batch;
  args.stage = instruction.part;
  const ValueViews values(step, shape, model.dtype, device_);
  args.values = values.of_values();
  args.value_gradients = values.of_gradients();
  dequantize(program, i);
  step.module->backward(args);
  if (step.y == nullptr && instruction.part == 0)
    add_balance(program, batch, shape);  // the first backward: all layers have chosen their experts
}

/// Of the ranks that share the rows, or have parts of matrices, the first one adds it: each has the losses of them
/// all.
void Executor::add_balance(const BoundSchedule& program, const models::Batch& batch, const models::BatchShape& shape) {
  if (program.router == nullptr || program.block->extra.empty()) return;
  const plan::RunSpec& spec = parts_.plan->spec;
  const Mesh& mesh = spec.strategy.mesh;
  if (mesh.coordinate(spec.rank, Axis::context) > 0 || mesh.coordinate(spec.rank, Axis::tensor) > 0) return;
  const StepPointers pointers = backend_->pointers(program);
  kernels::add_balance_losses({.of = models::balance_of(batch, shape.packed),
                               .gradient_scale = pointers.gradient_scale,
                               .unit = StepBlock::balance_unit,
                               .sums = pointers.extra},
                              compute_);
}

const float* Executor::logits(const BoundSchedule& program) {
  return reinterpret_cast<const float*>(program.host_logits);
}

void Executor::start_trace(int runs) {
  const plan::RunPlan& plan = *parts_.plan;
  const std::size_t passes = static_cast<std::size_t>(plan.spec.kl_passes()) * plan.eval.list.size();
  trace_.start(static_cast<std::size_t>(runs) * (plan.main().list.size() + passes) * 2);
}

}  // namespace tessera::exec
