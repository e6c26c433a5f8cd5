// SPDX-License-Identifier: Apache-2.0
// Binding of a schedule: resolves slots to pointers, once, before the first step.
#include <algorithm>
#include <map>

#include "runtime/exec/bound_schedule.hpp"
#include "runtime/plan/activations.hpp"

namespace tessera::exec {

namespace {

using Step = Executor::BoundSchedule::Step;

std::size_t bytes_of(std::int64_t numel, DType dtype) { return static_cast<std::size_t>(numel) * size_of(dtype); }

/// What the instructions of a schedule look up, resolved once.
class Lookup {
 public:
  Lookup(const plan::RunPlan& plan, const shard::Schedule& schedule, const shard::ShardManager& manager,
         const Arena& arena)
      : schedule_(schedule),
        manager_(manager),
        dequantized_(arena.data_if({SlotUse::dequantized})),
        slots_(schedule.slots.size()),
        last_gradient_(static_cast<std::size_t>(plan.layout.num_units())) {
    const auto& modules = plan.spec.model->modules;
    for (std::size_t m = 0; m < modules.size(); ++m)
      for (const int param : modules[m]->params()) last_reader_[param] = static_cast<int>(m);
    for (std::size_t m = 0; m < schedule.modules.size(); ++m)
      for (const int unit : schedule.modules[m].grad_units)
        last_gradient_[static_cast<std::size_t>(unit)] = static_cast<int>(m);
  }
  /// Null for slot -1.
  [[nodiscard]] std::byte* slot(int slot) {
    if (slot < 0) return nullptr;
    std::byte*& data = slots_[static_cast<std::size_t>(slot)];
    if (data == nullptr) data = manager_.slot(schedule_, slot);
    return data;
  }
  /// Where quantized matrices are dequantized to; null if there are none.
  [[nodiscard]] std::byte* dequantized() const { return dequantized_; }
  /// True if no module later in the model (earlier in backward) contributes to the parameter's gradient.
  [[nodiscard]] bool first_contributor(int module, int param) const { return last_reader_.at(param) <= module; }
  /// The same of a unit's gradient buffer.
  [[nodiscard]] bool first_to_touch(int module, int unit) const {
    return last_gradient_[static_cast<std::size_t>(unit)] <= module;
  }

 private:
  const shard::Schedule& schedule_;
  const shard::ShardManager& manager_;
  std::byte* dequantized_;
  std::vector<std::byte*> slots_;   // null: not looked up yet
  std::map<int, int> last_reader_;  // the last module, by parameter; below, by unit
  std::vector<int> last_gradient_;
};

/// Binds the parameters that an instruction reads.
void bind_params(Step& step, const plan::RunPlan& plan, const shard::Schedule& schedule, Lookup& lookup,
                 std::size_t instruction) {
  const models::Model& model = *plan.spec.model;
  step.params.reserve(step.module->params().size());
  std::byte* dequantized = lookup.dequantized();
  for (const int param : step.module->params()) {
    const int home = plan.layout.unit_of(param);
    const DType dtype = schedule.units[static_cast<std::size_t>(home)].param_dtype;
    const std::size_t offset = bytes_of(plan.layout.offset_of(param), dtype);
    std::byte* data = nullptr;  // null if the instruction does not read the unit
    for (const auto& [unit, slot] : schedule.reads[instruction])
      if (unit == home) data = lookup.slot(slot) + offset;
    const ParamSpec& spec = model.params[static_cast<std::size_t>(param)];
    if (spec.quantized) {
      const TensorView matrix(data != nullptr ? dequantized : nullptr, model.dtype, spec.matrix_shape(),
                              plan.spec.device);
      if (data != nullptr)
        step.quantized.push_back({spec.quantized, {data, dtype, spec.shape, plan.spec.device}, matrix});
      dequantized += plan::dequantized_bytes(model, param);
      step.params.push_back(matrix);
      continue;
    }
    step.params.emplace_back(data, dtype, spec.shape, plan.spec.device);
  }
}

/// Binds the gradients that a backward writes.
void bind_grads(Step& step, const plan::RunPlan& plan, const shard::Schedule& schedule, Lookup& lookup,
                const shard::Instruction& instruction) {
  const models::Model& model = *plan.spec.model;
  const auto dtype_of = [&](int unit) { return schedule.units[static_cast<std::size_t>(unit)].reduce_dtype; };
  const auto adds = [&](int unit) {
    return instruction.micro > 0 && schedule.units[static_cast<std::size_t>(unit)].adds_in_slot;
  };
  step.dparams.reserve(step.module->params().size());
  step.accumulate.reserve(step.module->params().size());
  for (const int param : step.module->params()) {
    const int unit = plan.layout.unit_of(param), slot = schedule.grad_slot(unit, instruction.micro);
    if (slot < 0) {  // frozen
      step.dparams.emplace_back();
      step.accumulate.push_back(0);
      continue;
    }
    const DType dtype = dtype_of(unit);
    step.dparams.emplace_back(lookup.slot(slot) + bytes_of(plan.layout.offset_of(param), dtype), dtype,
                              model.params[static_cast<std::size_t>(param)].shape, plan.spec.device);
    step.accumulate.push_back(adds(unit) || !lookup.first_contributor(instruction.module, param));
  }
  const shard::ModuleUse& use = schedule.use_of(instruction);
  if (instruction.part + 1 < use.num_stages()) return;  // a later stage, whose backward comes first, has them
  for (const int unit : use.grad_units) {
    if (adds(unit) || !lookup.first_to_touch(instruction.module, unit)) continue;
    const DType dtype = dtype_of(unit);
    std::byte* data = lookup.slot(schedule.grad_slot(unit, instruction.micro));
    step.gradients.push_back({data, bytes_of(plan.layout.padded_numel(unit), dtype), dtype});
    for (const auto& [offset, length] : plan.layout.gaps(unit))
      step.gaps.push_back({data + bytes_of(offset, dtype), bytes_of(length, dtype), dtype});
  }
}

/// The activations that an instruction of a module reads and writes.
void bind_activations(Step& step, const shard::Schedule& schedule, Lookup& lookup,
                      const shard::Instruction& instruction) {
  const shard::ActivationSlots& slots = schedule.activation_slots(instruction);
  step.x = lookup.slot(slots.input);
  step.y = lookup.slot(schedule.output_slot(instruction));
  step.dx = lookup.slot(slots.gradient);
  step.dy = lookup.slot(schedule.output_gradient_slot(instruction));
  step.saved = lookup.slot(slots.recomputed >= 0 ? slots.recomputed : slots.saved);
  if (slots.recomputed >= 0) step.kept = lookup.slot(slots.saved);
  for (const int value : slots.values) step.values.push_back(lookup.slot(value));
  for (const int gradient : slots.value_gradients) step.value_gradients.push_back(lookup.slot(gradient));
}

models::Cache bind_cache(const plan::RunPlan& plan, const Arena& arena, int module) {
  const plan::RunSpec& spec = plan.spec;
  const models::CacheShape cached{spec.batch.micro_batch, spec.cache_tokens};
  std::byte* data = spec.purpose == plan::Purpose::generate ? arena.data_if({SlotUse::cache, module}) : nullptr;
  if (data == nullptr) return {};
  const std::size_t bytes =
      spec.model->modules[static_cast<std::size_t>(module)]->cache_bytes(cached, spec.model->dtype);
  return {{data, DType::u8, Shape{static_cast<std::int64_t>(bytes)}, spec.device}, cached};
}

/// The buffers of micro-batches; `pinned`: those that the host writes, beside a device.
BatchMemory batch_memory(const plan::RunPlan& plan, const Arena& arena, Memory memory) {
  BatchMemory buffers;
  buffers.set_sharing(plan.spec.row_sharing());
  for (const models::BatchFieldInfo& field : models::batch_fields) {
    const SlotId id = plan::batch_slot(field.field);
    buffers.set(field.field, arena.data_if(memory == Memory::pinned ? id.pinned() : id));
  }
  return buffers;
}

/// What only a device has: pinned buffers, scalars of the step, events of copies.
void bind_device(Executor::BoundSchedule& program, const plan::RunPlan& plan, const Arena& arena, bool replays) {
  const shard::Schedule& schedule = *program.schedule;
  program.host_buffers = batch_memory(plan, arena, Memory::pinned);
  if (program.phase == models::Phase::train) {
    program.sequences_per_micro = plan.spec.train_sequences();
    program.tokens_per_micro = plan.spec.train_shape().batch * plan.spec.train_shape().tokens;
    program.step = reinterpret_cast<kernels::StepScalars*>(arena.data({SlotUse::step}));
    program.pinned_step = reinterpret_cast<kernels::StepScalars*>(arena.data(SlotId{SlotUse::step}.pinned()));
  }
  if (program.phase == models::Phase::train)
    for (const shard::Instruction& instruction : schedule.list)
      for (const int before : instruction.after)
        if (instruction.stream == shard::StreamId::compute)
          program.waits.push_back({before, TimedEvent(plan.spec.device), TimedEvent(plan.spec.device)});
  program.host_logits = arena.data_if(SlotId{SlotUse::logits}.pinned());
  program.chosen = reinterpret_cast<std::int32_t*>(arena.data_if({SlotUse::chosen}));
  program.host_chosen = reinterpret_cast<std::int32_t*>(arena.data_if(SlotId{SlotUse::chosen}.pinned()));
  program.draws = reinterpret_cast<double*>(arena.data_if({SlotUse::draws}));
  program.host_draws = reinterpret_cast<double*>(arena.data_if(SlotId{SlotUse::draws}.pinned()));
  program.copied = std::make_unique<Event[]>(static_cast<std::size_t>(std::max(schedule.num_micro, 1)));
  for (std::size_t i = 0; i < schedule.list.size(); ++i)
    if (schedule.list[i].op == shard::Op::norm) program.norm = static_cast<int>(i);
  const auto is_forward = [](const shard::Instruction& instruction) {
    return instruction.stream == shard::StreamId::compute &&
           (instruction.op == shard::Op::forward || instruction.op == shard::Op::release);
  };
  program.replays = replays && plan.spec.purpose == plan::Purpose::generate && program.norm >= 0 &&
                    std::all_of(schedule.list.begin(), schedule.list.begin() + program.norm, is_forward);
}

}  // namespace

std::unique_ptr<Executor::BoundSchedule> Executor::bind(const shard::Schedule& schedule, models::Phase phase) {
  const plan::RunPlan& plan = *parts_.plan;
  const models::Model& model = *plan.spec.model;
  const Arena& arena = *parts_.arena;
  const bool train = phase == models::Phase::train;

  auto program = std::make_unique<BoundSchedule>();
  program->executor = this;
  program->schedule = &schedule;
  program->phase = phase;
  program->events = std::make_unique<Event[]>(schedule.list.size());
  program->workspace = arena.data({SlotUse::workspace});
  program->logits = arena.data_if({SlotUse::logits});
  program->buffers = program->host_buffers = batch_memory(plan, arena, Memory::host);
  program->host_logits = program->logits;
  if (plan.spec.device != host_device) bind_device(*program, plan, arena, parts_.replays);
  program->sequences = arena.data_if({SlotUse::sequences});
  if (!schedule.references.empty()) program->reference = arena.data({SlotUse::reference});
  if (train) program->router = reinterpret_cast<double*>(arena.data_if({SlotUse::router}));

  const int first = train ? shard::first_backward(schedule.modules) : 0;
  Lookup lookup(plan, schedule, *parts_.manager, arena);
  for (std::size_t i = 0; i < schedule.list.size(); ++i) {
    const shard::Instruction& instruction = schedule.list[i];
    Step step;
    step.slots = {lookup.slot(instruction.slot), lookup.slot(instruction.sum), lookup.slot(instruction.stage)};
    if (instruction.module >= 0) {
      const int m = instruction.module, instance = instruction.instance;
      const auto& modules = instance == 0 ? model.modules : model.reference;
      step.module = modules[static_cast<std::size_t>(m)].get();
      step.phase = m < first || instance > 0 ? models::Phase::eval : phase;
      if (instruction.op == shard::Op::exchange) {
        const shard::Schedule::ExchangeSlots slots = schedule.exchange_slots(instruction);
        step.values = {lookup.slot(slots.from), lookup.slot(slots.to)};
        program->steps.push_back(std::move(step));
        continue;
      }
      if (instruction.op == shard::Op::fetch || instruction.op == shard::Op::store) {
        step.home = arena.data(plan::offloaded_slot(instruction));
        program->steps.push_back(std::move(step));
        continue;
      }
      bind_activations(step, schedule, lookup, instruction);
      if (instance == 0) step.cache = bind_cache(plan, arena, m);
      bind_params(step, plan, schedule, lookup, i);
      if (instruction.op == shard::Op::backward) bind_grads(step, plan, schedule, lookup, instruction);
    }
    program->steps.push_back(std::move(step));
  }
  return program;
}

}  // namespace tessera::exec
