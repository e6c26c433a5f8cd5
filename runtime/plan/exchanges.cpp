// SPDX-License-Identifier: Apache-2.0
#include "runtime/plan/exchanges.hpp"

#include <algorithm>
#include <stdexcept>

#include "runtime/base/error.hpp"

namespace tessera::plan {

const models::Module& module_of(const models::Model& model, const shard::Instruction& in) {
  return *(in.instance == 0 ? model.modules : model.reference)[static_cast<std::size_t>(in.module)];
}

std::size_t exchanged_bytes(const models::Model& model, const shard::Schedule& schedule,
                            const shard::Instruction& exchange, const models::BatchShape& shape) {
  const shard::ModuleExchange& of = schedule.exchange_of(exchange);
  const models::Module& module = module_of(model, exchange);
  return exchange.pass == shard::Op::backward ? module.value_gradient_bytes(of.to, shape, model.dtype)
                                              : module.value_bytes(of.from, shape, model.dtype);
}

models::BatchShape shape_of(const RunPlan& plan, const shard::Schedule& schedule) {
  if (&schedule == &plan.train) return plan.spec.train_shape();
  models::BatchShape shape = plan.spec.eval_shape();
  if (&schedule == &plan.logits && plan.spec.purpose == Purpose::train) shape = plan.spec.prompt_shape();
  return shape;
}

/// What an exchange makes of so many bytes of each of the members.
static std::size_t result_bytes(ExchangeKind kind, std::size_t bytes, std::size_t members, DType dtype) {
  const std::size_t sums = bytes / size_of(dtype) * sizeof(float);
  switch (kind) {
    case ExchangeKind::copy:
    case ExchangeKind::all_to_all: return bytes;
    case ExchangeKind::all_gather: return bytes * members;
    case ExchangeKind::reduce_scatter: return sums / members;
    case ExchangeKind::all_reduce: return sums;
  }
  return 0;
}

void check_exchanges(const RunPlan& plan) {
  const models::Model& model = *plan.spec.model;
  for (const shard::Schedule* schedule : plan.schedules())
    for (const shard::Instruction& in : schedule->list) {
      if (in.op != shard::Op::exchange) continue;
      const shard::ModuleExchange& of = schedule->exchange_of(in);
      const models::BatchShape shape = shape_of(plan, *schedule);
      const models::Module& module = module_of(model, in);
      const auto members = static_cast<std::size_t>(plan.spec.strategy.mesh.size(of.axes));
      const std::size_t made =
          result_bytes(schedule->exchange_kind(in), exchanged_bytes(model, *schedule, in, shape), members, model.dtype);
      const bool back = in.pass == shard::Op::backward;
      const std::size_t planned = back ? module.value_gradient_bytes(of.from, shape, model.dtype)
                                       : module.value_bytes(of.to, shape, model.dtype);
      if (made != planned)
        throw std::logic_error(strfmt("%s has %zu bytes, and %s makes %zu", instruction_name(*schedule, in).c_str(),
                                      planned, name_of(schedule->exchange_kind(in)), made));
    }
}

std::vector<std::size_t> largest_exchanges(const RunPlan& plan) {
  std::vector<std::size_t> most(plan.groups.all.size() - plan.groups.first_exchange);
  const models::Model& model = *plan.spec.model;
  for (const shard::Schedule* schedule : plan.schedules())
    for (const shard::Instruction& in : schedule->list) {
      if (in.op != shard::Op::exchange) continue;
      const AxisSet axes = schedule->exchange_of(in).axes;
      const int group = plan.groups.exchange_index_of(axes);
      if (group < 0) continue;
      std::size_t bytes = exchanged_bytes(model, *schedule, in, shape_of(plan, *schedule));
      if (is_sum(schedule->exchange_kind(in))) bytes = bytes / size_of(model.dtype) * sizeof(float);
      else if (schedule->exchange_kind(in) == ExchangeKind::all_gather)
        bytes *= static_cast<std::size_t>(plan.spec.strategy.mesh.size(axes));
      std::size_t& largest = most[static_cast<std::size_t>(group) - plan.groups.first_exchange];
      largest = std::max(largest, bytes);
    }
  return most;
}

/// Adds a slot, or makes it as large as this.
static void add_or_grow(std::vector<ArenaSlot>& slots, SlotId id, std::size_t bytes) {
  const auto same = std::ranges::find(slots, id, &ArenaSlot::id);
  if (same != slots.end()) {
    same->bytes = std::max(same->bytes, bytes);
    return;
  }
  const std::string word = id.use == SlotUse::value ? "value." : "value_gradient.",
                    module = id.of < 0 ? std::string() : std::to_string(id.of) + ".";
  slots.push_back({id, word + module + std::to_string(id.part), Category::activations, Placement::own, bytes});
}

void add_value_slots(RunPlan& plan) {
  const models::Model& model = *plan.spec.model;
  for (const shard::Schedule* schedule : plan.schedules())
    for (const shard::Instruction& in : schedule->list) {
      if (in.op != shard::Op::forward && in.op != shard::Op::backward) continue;
      const shard::ActivationSlots& slots = schedule->activation_slots(in);
      const models::BatchShape shape = shape_of(plan, *schedule);
      const models::Module& module = module_of(model, in);
      const auto add = [&](const std::vector<int>& values, const auto& bytes) {
        for (std::size_t v = 0; v < values.size(); ++v)
          if (values[v] >= 0)
            add_or_grow(plan.slots, schedule->slots[static_cast<std::size_t>(values[v])].id,
                        bytes(static_cast<int>(v)));
      };
      add(slots.values, [&](int v) { return module.value_bytes(v, shape, model.dtype); });
      add(slots.value_gradients, [&](int v) { return module.value_gradient_bytes(v, shape, model.dtype); });
    }
}

}  // namespace tessera::plan
