// SPDX-License-Identifier: Apache-2.0
#include "runtime/shard/memory.hpp"

#include <algorithm>

#include "runtime/comm/int8_collectives.hpp"

namespace tessera::shard {

namespace {
std::size_t bytes_of(std::int64_t numel, DType dtype) { return static_cast<std::size_t>(numel) * size_of(dtype); }
std::size_t fp32_bytes(std::int64_t numel) { return bytes_of(numel, DType::f32); }

void add_or_grow(std::vector<ArenaSlot>& slots, const ArenaSlot& slot) {
  const auto same = std::find_if(slots.begin(), slots.end(), [&](const ArenaSlot& s) { return s.id == slot.id; });
  if (same == slots.end()) slots.push_back(slot);
  else same->bytes = std::max(same->bytes, slot.bytes);
}

/// Makes a slot one that the ranks of a group share.
void share(const MemoryInput& in, AxisSet axes, Placement placement, ArenaSlot& slot) {
  slot.placement = placement;
  slot.sharers = in.mesh.size(axes);
  slot.index = in.mesh.coordinate(in.rank, axes);
  slot.group = in.groups.index_of(axes);
}

Memory memory_of(Tier tier) {
  return tier == Tier::device ? Memory::host : tier == Tier::host ? Memory::pinned : Memory::disk;
}

ArenaSlot own_slot(SlotId id, std::string name, Category category, std::size_t bytes, Tier tier = Tier::device) {
  return {id, std::move(name), category, Placement::own, bytes, memory_of(tier)};
}

/// "gather.s1", "grad.s2", "sum.s3", "stage.grads.1"; of a resident slot, the name of its unit: "param.h.3",
/// "grad.h.3".
std::string slot_name(const Schedule& schedule, const ShardLayout& layout, int slot) {
  const Slot& s = schedule.slots[static_cast<std::size_t>(slot)];
  if (s.kind == Slot::Kind::stage)
    return std::string("stage.") + name_of(s.state) + "." + std::to_string(slot_id(schedule, slot).of);
  if (s.resident) return (s.kind == Slot::Kind::param ? "param." : "grad.") + layout.unit_name(s.units.front());
  return (s.kind == Slot::Kind::param  ? "gather.s"
          : s.kind == Slot::Kind::grad ? "grad.s"
                                       : "sum.s") +
         std::to_string(slot);
}

/// What gathers read of a unit whose optimizer states, or params, are offloaded.
void add_placed_params(const MemoryInput& in, int u, std::vector<ArenaSlot>& slots) {
  const ShardLayout& layout = *in.layout;
  const ScheduledUnit& unit = in.schedules.front()->units[static_cast<std::size_t>(u)];
  const std::size_t shard = bytes_of(layout.shard_numel(u), unit.param_dtype);
  if (unit.optimizer_offloaded() && !unit.params_offloaded() && !unit.params_resident)
    slots.push_back(own_slot({SlotUse::shard, u}, "shard." + layout.unit_name(u), Category::params, shard));
  const Tier tier = unit.placement.params == Tier::disk ? Tier::disk : Tier::host;
  if (has_host_copy(unit))
    slots.push_back(
        own_slot({SlotUse::host_copy, u}, "host_copy." + layout.unit_name(u), Category::params, shard, tier));
}

std::size_t staged_bytes(const ScheduledUnit& unit, StateKind state, std::int64_t numel,
                         std::span<const StateSpec> states) {
  if (state == StateKind::optimizer) return StagedUpdate(unit, numel, states).bytes;
  if (state == StateKind::params) return bytes_of(numel, fetched_dtype(unit));
  // Accumulators begin on pages if they are on disk.
  const std::size_t one = fp32_bytes(numel);
  return (unit.placement.grads == Tier::disk ? round_to_pages(one) : one) *
         static_cast<std::size_t>(unit.num_accumulators);
}

void add_staging_slots(const MemoryInput& in, std::vector<ArenaSlot>& slots) {
  for (const Schedule* schedule : in.schedules)
    for (std::size_t s = 0; s < schedule->slots.size(); ++s) {
      const Slot& slot = schedule->slots[s];
      if (slot.kind != Slot::Kind::stage || slot.units.empty()) continue;
      std::size_t largest = 0;
      Tier tier = Tier::device;
      for (const int u : slot.units) {
        const ScheduledUnit& unit = schedule->units[static_cast<std::size_t>(u)];
        largest = std::max(largest, staged_bytes(unit, slot.state, in.layout->shard_numel(u), in.states));
        if (slot.state == StateKind::optimizer && unit.update_on_host) tier = Tier::host;
      }
      const int index = static_cast<int>(s);
      add_or_grow(slots, own_slot(slot_id(*schedule, index), slot_name(*schedule, *in.layout, index), Category::buffers,
                                  largest, tier));
    }
}

/// Gathered parameters, and master weights unless these are intervals of resident slots.
void add_param_slots(const MemoryInput& in, std::vector<ArenaSlot>& slots) {
  const ShardLayout& layout = *in.layout;
  for (int u = 0; u < layout.num_units(); ++u) {
    const ScheduledUnit& unit = in.schedules.front()->units[static_cast<std::size_t>(u)];
    if (!unit.params_resident || unit.has_separate_masters() || unit.optimizer_offloaded())
      slots.push_back(own_slot({SlotUse::master, u}, "master." + layout.unit_name(u), Category::params,
                               bytes_of(layout.shard_numel(u), unit.storage_dtype),
                               unit.trainable ? unit.placement.optimizer : unit.placement.params));
    add_placed_params(in, u, slots);
  }
  for (const Schedule* schedule : in.schedules)
    for (std::size_t s = 0; s < schedule->slots.size(); ++s) {
      const Slot& slot = schedule->slots[s];
      if (slot.kind != Slot::Kind::param || slot.units.empty()) continue;
      const int index = static_cast<int>(s);
      const auto full = static_cast<std::size_t>(schedule->slot_bytes(index));
      ArenaSlot gathered{slot_id(*schedule, index), slot_name(*schedule, layout, index),
                         slot.resident ? Category::params : Category::buffers, Placement::own, full};
      const ScheduledUnit& unit = schedule->units[static_cast<std::size_t>(slot.units.front())];
      if (unit.params_in_place) {
        share(in, unit.shard_axes, Placement::node, gathered);
        gathered.bytes = full / static_cast<std::size_t>(gathered.sharers);
      }
      add_or_grow(slots, gathered);
    }
}

void add_grad_slots(const MemoryInput& in, std::vector<ArenaSlot>& slots) {
  const ShardLayout& layout = *in.layout;
  const Schedule& train = *in.schedules.front();
  for (std::size_t s = 0; s < train.slots.size(); ++s) {
    if (train.slots[s].kind != Slot::Kind::grad || train.slots[s].units.empty()) continue;
    const int slot = static_cast<int>(s);
    ArenaSlot gradient{.id = slot_id(train, slot),
                       .name = slot_name(train, layout, slot),
                       .category = Category::grads,
                       .bytes = static_cast<std::size_t>(train.slot_bytes(slot))};
    const ScheduledUnit& unit = train.units[static_cast<std::size_t>(train.slots[s].units.front())];
    const AxisSet axes = unit.sharded() ? unit.shard_axes : unit.replicate_axes;  // of the first sum
    if (!axes.empty() && in.topology.in_place(in.mesh, axes)) share(in, axes, Placement::peers_read, gradient);
    slots.push_back(gradient);
  }
  for (int u = 0; u < layout.num_units(); ++u)
    for (int p = 0; p < train.units[static_cast<std::size_t>(u)].num_accumulators; ++p)
      slots.push_back(own_slot({SlotUse::accumulator, u, p}, "reduced." + std::to_string(p) + "." + layout.unit_name(u),
                               Category::grads, fp32_bytes(layout.shard_numel(u)),
                               train.units[static_cast<std::size_t>(u)].placement.grads));
  for (std::size_t s = 0; s < train.slots.size(); ++s) {
    if (train.slots[s].kind != Slot::Kind::sum || train.slots[s].units.empty()) continue;
    std::int64_t largest = 0;  // shard
    for (const int u : train.slots[s].units) largest = std::max(largest, layout.shard_numel(u));
    const int slot = static_cast<int>(s);
    slots.push_back(
        own_slot(slot_id(train, slot), slot_name(train, layout, slot), Category::buffers, fp32_bytes(largest)));
  }
}

/// Bytes of the largest collective of a group that needs staging: sums do; with device memory, gathers do too, and the
/// counters of norm, which may be all that the group has.
std::uint64_t largest_staged(const MemoryInput& in, AxisSet axes) {
  const Schedule& main = *in.schedules.front();
  std::size_t largest = in.topology.staged ? page_bytes : 0;
  for (int u = 0; u < in.layout->num_units(); ++u) {
    const ScheduledUnit& unit = main.units[static_cast<std::size_t>(u)];
    const bool sums = !main.grad_slots.empty() && unit.trainable;
    if (!sums && !in.topology.staged) continue;
    const DType dtype = sums ? unit.reduce_dtype : unit.param_dtype;
    if (unit.shard_axes == axes) largest = std::max(largest, bytes_of(unit.numel, dtype));
    // Replicas sum what the shard group, if there is one, has reduced to fp32.
    if (unit.replicate_axes == axes)
      largest = std::max(largest, bytes_of(in.layout->shard_numel(u), unit.sharded() ? DType::f32 : dtype));
  }
  return largest;
}

/// Residuals of gradients, and their sums, which all units have then: a checkpoint has a value for every parameter.
void add_residuals(const MemoryInput& in, std::vector<ArenaSlot>& slots) {
  const ShardLayout& layout = *in.layout;
  if (!has_residuals(*in.schedules.front())) return;
  for (int u = 0; u < layout.num_units(); ++u) {
    const ScheduledUnit& unit = in.schedules.front()->units[static_cast<std::size_t>(u)];
    if (!unit.trainable) continue;
    const bool feedback = unit.int8.error_feedback;
    const auto add = [&](SlotUse use, const char* word, std::int64_t numel) {
      slots.push_back(own_slot({use, u}, std::string("residual.") + word + "." + layout.unit_name(u), Category::grads,
                               fp32_bytes(numel)));
    };
    if (feedback && unit.int8.reduce_scatter) add(SlotUse::scatter_residual, "scatter", unit.numel);
    if (feedback && unit.int8.all_reduce) add(SlotUse::reduce_residual, "reduce", layout.shard_numel(u));
    add(SlotUse::residual_sum, "sum", layout.shard_numel(u));
  }
}

/// Codes of the largest collective of each group.
void add_int8_staging(const MemoryInput& in, std::vector<ArenaSlot>& slots) {
  for (std::size_t g = 0; g < in.groups.first_exchange; ++g) {
    const AxisSet axes = in.groups.all[g];
    const auto members = static_cast<std::size_t>(in.mesh.size(axes));
    std::size_t bytes = 0;
    for (int u = 0; u < in.layout->num_units(); ++u) {
      const ScheduledUnit& unit = in.schedules.front()->units[static_cast<std::size_t>(u)];
      const auto shard = static_cast<std::size_t>(in.layout->shard_numel(u));
      if (unit.shard_axes == axes && unit.int8.gather)
        bytes = std::max(bytes, comm::int8_gather_staging(members, shard));
      if (unit.shard_axes == axes && unit.int8.reduce_scatter)
        bytes = std::max(bytes, comm::int8_sum_staging(members, shard));
      if (unit.replicate_axes == axes && unit.int8.all_reduce)
        bytes = std::max(bytes, comm::int8_sum_staging(members, shard / members));
    }
    if (bytes > 0)
      slots.push_back(own_slot({SlotUse::int8, in.groups.index_of(axes)}, "int8." + axes.str(), Category::comm, bytes));
  }
}

void add_staging(const MemoryInput& in, std::vector<ArenaSlot>& slots) {
  for (std::size_t g = 0; g < in.groups.all.size(); ++g) {
    const AxisSet axes = in.groups.all[g];
    const bool exchanges = g >= in.groups.first_exchange;
    const std::uint64_t largest = exchanges ? in.exchanged[g - in.groups.first_exchange] : largest_staged(in, axes);
    const std::string name = axes.str() + (exchanges ? ".exchange" : "");
    const int group = static_cast<int>(g);
    const std::size_t bytes = largest > 0 ? staging_bytes(in.topology, in.mesh, axes, in.rank, largest) : 0;
    if (bytes > 0) slots.push_back(own_slot({SlotUse::staging, group}, "staging." + name, Category::comm, bytes));
    const std::size_t inside = transport_bytes(in.topology, in.mesh, axes, in.rank);
    if (inside > 0)
      slots.push_back({{SlotUse::transport, group},
                       "transport." + name,
                       Category::comm,
                       Placement::transport,
                       inside,
                       in.topology.transport == Transport::nccl ? Memory::device : Memory::host});
  }
}
}  // namespace

SlotId slot_id(const Schedule& schedule, int slot) {
  const Slot& s = schedule.slots[static_cast<std::size_t>(slot)];
  switch (s.kind) {
    case Slot::Kind::param:
      return s.resident ? SlotId{SlotUse::params, s.units.front()} : SlotId{SlotUse::gathered, slot};
    case Slot::Kind::grad:
      return s.resident ? SlotId{SlotUse::grads, s.units.front()} : SlotId{SlotUse::gradient, slot};
    case Slot::Kind::sum: return {SlotUse::sum, slot};
    case Slot::Kind::activation: return s.id;
    case Slot::Kind::stage: break;
  }
  const auto before = std::count_if(schedule.slots.begin(), schedule.slots.begin() + slot, [&](const Slot& other) {
    return other.kind == Slot::Kind::stage && other.state == s.state;
  });
  const int number = static_cast<int>(before);
  if (s.state == StateKind::input) return {SlotUse::output, number};
  return {SlotUse::staged, number, static_cast<int>(s.state)};
}

bool has_host_copy(const ScheduledUnit& unit) {
  const StatePlacement& placement = unit.placement;
  return unit.update_on_host &&
         (unit.has_separate_masters() || (placement.optimizer == Tier::disk && placement.params != Tier::disk));
}

StagedUpdate::StagedUpdate(const ScheduledUnit& unit, std::int64_t shard_numel, std::span<const StateSpec> specs) {
  const auto add = [this](std::size_t count) {
    const std::size_t offset = bytes;
    bytes += round_to_pages(count);
    return offset;
  };
  master = add(fp32_bytes(shard_numel));
  for (const StateSpec& spec : specs) states.push_back(add(spec.bytes(shard_numel)));
  if (unit.grads_offloaded() && !unit.update_reaches(unit.placement.grads))
    grad = static_cast<std::int64_t>(add(fp32_bytes(shard_numel)));
  if (has_host_copy(unit) && unit.placement.params == Tier::disk)
    copy = static_cast<std::int64_t>(add(bytes_of(shard_numel, unit.param_dtype)));
}

DType fetched_dtype(const ScheduledUnit& unit) { return unit.trainable ? unit.param_dtype : unit.storage_dtype; }
StateSpec residual_state() { return {.name = "residual"}; }
bool has_residuals(const Schedule& train) {
  return std::ranges::any_of(train.units, [](const ScheduledUnit& unit) { return unit.int8.error_feedback; });
}

std::vector<ArenaSlot> shard_slots(const MemoryInput& input) {
  std::vector<ArenaSlot> slots;
  add_param_slots(input, slots);
  add_grad_slots(input, slots);
  for (int u = 0; u < input.layout->num_units(); ++u)
    for (std::size_t k = 0; k < input.states.size(); ++k)
      if (input.layout->trainable(u))
        slots.push_back(own_slot({SlotUse::state, u, static_cast<int>(k)},
                                 "state." + input.states[k].name + "." + input.layout->unit_name(u),
                                 Category::optimizer, input.states[k].bytes(input.layout->shard_numel(u)),
                                 input.schedules.front()->units[static_cast<std::size_t>(u)].placement.optimizer));
  add_staging_slots(input, slots);
  add_residuals(input, slots);
  add_staging(input, slots);
  add_int8_staging(input, slots);
  return slots;
}

}  // namespace tessera::shard
