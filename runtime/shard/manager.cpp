// SPDX-License-Identifier: Apache-2.0
#include "runtime/shard/manager.hpp"

#include <algorithm>
#include <utility>

#include "kernels/convert.hpp"
#include "kernels/reduce.hpp"
#include "runtime/base/disk_memory.hpp"
#include "runtime/base/error.hpp"
#include "runtime/base/rng.hpp"
#include "runtime/base/transfer.hpp"
#include "runtime/comm/int8_collectives.hpp"
#include "runtime/comm/sum_to_f32.hpp"
#include "runtime/shard/memory.hpp"

namespace tessera::shard {

ShardManager::ShardManager(const Parts& parts)
    : parts_(parts), units_(static_cast<std::size_t>(parts.layout->num_units())) {
  for (std::size_t g = 0; g < parts_.groups->all.size(); ++g)
    if (const auto staging = parts_.arena->memory({SlotUse::staging, static_cast<int>(g)}); !staging.empty())
      parts_.communicators[g]->set_staging(staging);
  for (int u = 0; u < parts_.layout->num_units(); ++u) bind_unit(u);
  counters_.resize(num_norm_counters(parts_.layout->num_units(), parts_.num_extra));
  replicate_counters_.resize(counters_.size());
  if (parts_.device != host_device) bind_norm();
}

std::byte* ShardManager::slot(const Schedule& schedule, int slot) const {
  return parts_.arena->data(slot_id(schedule, slot));
}

TensorView ShardManager::shard(int unit) const {
  return {units_[static_cast<std::size_t>(unit)].master, scheduled(unit).storage_dtype,
          Shape{parts_.layout->shard_numel(unit)}, units_[static_cast<std::size_t>(unit)].device};
}

Communicator* ShardManager::communicator(AxisSet axes) const {
  const int group = parts_.groups->index_of(axes);
  return group < 0 ? nullptr : parts_.communicators[static_cast<std::size_t>(group)].get();
}

void ShardManager::bind_unit(int u) {
  const ShardLayout& layout = *parts_.layout;
  const ScheduledUnit& record = scheduled(u);
  const auto floats = [&](SlotId id) { return reinterpret_cast<float*>(parts_.arena->data(id)); };
  Unit& unit = units_[static_cast<std::size_t>(u)];
  unit.index = layout.shard_of(u, parts_.rank);
  unit.first_replica = layout.replica_of(u, parts_.rank) == 0;
  unit.shards = communicator(record.shard_axes);
  unit.replicas = communicator(record.replicate_axes);
  const std::int64_t offset = unit.index * layout.shard_numel(u);

  std::byte* const interval =
      record.params_resident
          ? parts_.arena->data({SlotUse::params, u}) + static_cast<std::size_t>(offset) * size_of(record.param_dtype)
          : nullptr;
  const bool separate = record.has_separate_masters();
  const bool in_slot = interval != nullptr && !separate && !record.optimizer_offloaded();
  unit.master = in_slot ? interval : parts_.arena->data({SlotUse::master, u});
  unit.low_precision = separate && !record.optimizer_offloaded() ? interval : nullptr;
  unit.device = device_of(record.trainable ? record.placement.optimizer : record.placement.params);
  bind_source(u, interval);
  for (const Segment& segment : layout.segments(u, unit.index))
    unit.view.ranges.push_back({segment.param, segment.unit_offset - offset, segment.length});
  bind_int8(u);
  const bool has_gradient = !parts_.train->grad_slots.empty() && parts_.train->grad_slot(u, 0) >= 0;
  if (layout.trainable(u))
    for (int k = 0; k < static_cast<int>(parts_.states.size()); ++k) {
      const StateSpec& state = parts_.states[static_cast<std::size_t>(k)];
      unit.view.states.emplace_back(parts_.arena->data({SlotUse::state, u, k}), state.dtype,
                                    Shape{state.count(layout.shard_numel(u))}, unit.device);
    }
  for (int p = 0; p < record.num_accumulators; ++p) unit.accumulators.push_back(floats({SlotUse::accumulator, u, p}));
  if (!has_gradient) return;
  // The finished gradient: the first accumulator, or this rank's interval of the resident gradient slot.
  unit.reduced = record.num_accumulators > 0 ? unit.accumulators[0] : floats({SlotUse::grads, u}) + offset;

  unit.view.numel = layout.shard_numel(u);
  unit.view.master = master(u);
  unit.view.grad = unit.reduced;
  unit.view.device = unit.device;
  std::byte* const copy = has_host_copy(record) ? unit.source : unit.low_precision;
  if (copy != nullptr && separate)
    unit.view.low_precision = {copy, record.param_dtype, Shape{layout.shard_numel(u)}, unit.device};
  if (record.stages_update()) bind_staged(u);
}

Device ShardManager::device_of(Tier tier) const {
  return tier == Tier::device ? parts_.device : tier == Tier::host ? host_device : disk_device;
}

void ShardManager::gather(const Instruction& instruction, const SlotMemory& memory) {
  const int u = instruction.unit;
  const Unit& unit = units_[static_cast<std::size_t>(u)];
  const ScheduledUnit& record = scheduled(u);
  if (unit.shards == nullptr && !record.params_offloaded()) return;
  const std::int64_t numel = parts_.layout->shard_numel(u);
  const auto chunk = static_cast<std::size_t>(numel) * size_of(record.param_dtype);
  std::byte* const own = memory.full + static_cast<std::size_t>(unit.index) * chunk;
  const std::byte* mine = record.params_offloaded() ? memory.stage : unit.shard != nullptr ? unit.shard : unit.master;
  const DType dtype = record.params_offloaded()      ? fetched_dtype(record)
                      : record.optimizer_offloaded() ? record.param_dtype
                                                     : record.storage_dtype;
  if (record.int8.gather) {
    const bool copied = unit.low_precision != nullptr;
    return comm::int8_all_gather(*unit.shards, {"gather", parts_.layout->unit_name(u).c_str(), instruction.micro},
                                 SourceBuffer(copied ? own : mine, copied ? record.param_dtype : dtype), memory.full,
                                 record.param_dtype, static_cast<std::size_t>(numel), unit.shards_int8, stream_);
  }
  if (unit.low_precision != nullptr) {
    mine = own;  // the update has written the copy
  } else if (dtype != record.param_dtype) {
    kernels::convert_serial({.from = {const_cast<std::byte*>(mine), dtype, Shape{numel}, parts_.device},
                             .to = {own, record.param_dtype, Shape{numel}, parts_.device}},
                            stream_);
    mine = own;
  }
  if (unit.shards != nullptr)
    on(*unit.shards, stream_)
        .all_gather({"gather", parts_.layout->unit_name(u).c_str(), instruction.micro}, mine, memory.full, chunk);
  else if (mine != own) copy_bytes(own, mine, chunk, stream_);
}

StreamView ShardManager::stream_of(const Instruction& instruction) const {
  return instruction.stream == StreamId::replicate ? replicate_stream_ : stream_;
}

Communicator& ShardManager::on(Communicator& group, StreamView stream) {
  group.run_on(stream);
  return group;
}

float* ShardManager::accumulator(const Instruction& instruction, int p, const SlotMemory& memory) const {
  if (memory.stage != nullptr) {
    const auto bytes = static_cast<std::size_t>(parts_.layout->shard_numel(instruction.unit)) * sizeof(float);
    const bool on_disk = scheduled(instruction.unit).placement.grads == Tier::disk;
    return reinterpret_cast<float*>(memory.stage +
                                    static_cast<std::size_t>(p) * (on_disk ? round_to_pages(bytes) : bytes));
  }
  const Unit& unit = units_[static_cast<std::size_t>(instruction.unit)];
  return unit.accumulators.empty() ? unit.reduced : unit.accumulators[static_cast<std::size_t>(p)];
}

float* ShardManager::target_of(const Instruction& instruction, const SlotMemory& memory) const {
  return accumulator(instruction, instruction.accumulation.target, memory);
}

void ShardManager::reduce_scatter(const Instruction& instruction, const SlotMemory& memory) {
  const Unit& unit = units_[static_cast<std::size_t>(instruction.unit)];
  const auto chunk = static_cast<std::size_t>(parts_.layout->shard_numel(instruction.unit));
  const SourceBuffer gradient(memory.full, scheduled(instruction.unit).reduce_dtype);
  float* x = memory.sum != nullptr ? reinterpret_cast<float*>(memory.sum) : target_of(instruction, memory);
  if (memory.sum == nullptr && !instruction.accumulation.inputs.empty()) {  // x is the only input, and the target
    if (gradient.dtype == DType::f32)
      kernels::add_to(static_cast<const float*>(gradient.data), x, chunk, stream_of(instruction));
    else kernels::add_16bit_to(gradient.data, gradient.dtype, x, chunk, stream_of(instruction));
    return end_accumulation(instruction, x);
  }
  if (unit.shards == nullptr) widen(gradient, x, chunk);
  else if (scheduled(instruction.unit).int8.reduce_scatter)
    comm::int8_reduce_scatter(*unit.shards, label_of(instruction), reinterpret_cast<const float*>(memory.full), x,
                              chunk, unit.scatter_residual, unit.shards_int8, stream_);
  else on(*unit.shards, stream_).reduce_scatter(label_of(instruction), gradient, x, chunk);
  accumulate(instruction, x, memory);
}

void ShardManager::all_reduce(const Instruction& instruction, const SlotMemory& memory) {
  const Unit& unit = units_[static_cast<std::size_t>(instruction.unit)];
  const auto chunk = static_cast<std::size_t>(parts_.layout->shard_numel(instruction.unit));
  float* x = memory.sum != nullptr ? reinterpret_cast<float*>(memory.sum) : target_of(instruction, memory);
  const SourceBuffer source =
      memory.full != nullptr ? SourceBuffer(memory.full, scheduled(instruction.unit).reduce_dtype) : x;
  if (scheduled(instruction.unit).int8.all_reduce)
    comm::int8_all_reduce(*unit.replicas, label_of(instruction), static_cast<const float*>(source.data), x, chunk,
                          unit.reduce_residual, unit.replicas_int8, stream_of(instruction));
  else on(*unit.replicas, stream_of(instruction)).all_reduce(label_of(instruction), source, x, chunk);
  accumulate(instruction, x, memory);
}

CollectiveLabel ShardManager::label_of(const Instruction& instruction) const {
  return {name_of(instruction.op), parts_.layout->unit_name(instruction.unit).c_str(), instruction.micro};
}

/// x = accumulator + x for each input, in order; the last sum goes to the target.
void ShardManager::accumulate(const Instruction& instruction, float* x, const SlotMemory& memory) {
  float* const target = target_of(instruction, memory);
  const auto& inputs = instruction.accumulation.inputs;
  const auto chunk = static_cast<std::size_t>(parts_.layout->shard_numel(instruction.unit));
  const StreamView stream = stream_of(instruction);
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    float* const input = accumulator(instruction, inputs[i], memory);
    if (i + 1 == inputs.size() && input == target)
      kernels::add_to(x, target, chunk, stream);  // x + accumulator and accumulator + x are the same bits
    else kernels::add_to(input, x, chunk, stream);
    if (i + 1 == inputs.size() && input != target) copy_bytes(target, x, chunk * sizeof(float), stream);
  }
  end_accumulation(instruction, target);
}

void ShardManager::end_accumulation(const Instruction& instruction, const float* target) {
  if (!instruction.last_reduce) return;
  TESSERA_ASSERT(instruction.accumulation.target == 0, "the gradient of unit %d ends in accumulator %d",
                 instruction.unit, instruction.accumulation.target);
  add_norm(instruction, target);
}

void ShardManager::add_norm(const Instruction& instruction, const float* gradient) {
  const int u = instruction.unit;
  const Unit& unit = units_[static_cast<std::size_t>(u)];
  if (!unit.first_replica) return;  // replicas have the same gradient
  const auto count = static_cast<std::size_t>(parts_.layout->shard_numel(u));
  const std::size_t flag =
      2 * ExactSum::num_counters + num_step_counters + static_cast<std::size_t>(parts_.num_extra + u);
  ExactSum norm2;
  const bool on_host = parts_.device == host_device, replicates = instruction.stream == StreamId::replicate;
  const StreamView stream = stream_of(instruction);
  auto& counters = replicates ? replicate_counters_ : counters_;
  std::int64_t* const of_device = replicates ? unit_counters_ + ExactSum::num_counters : unit_counters_;
  std::int64_t* const of_unit = on_host ? norm2.counters().data() : of_device;
  std::int64_t* const all = on_host ? counters.data() : device_counters_;
  kernels::sum_of_squares(gradient, count, *reinterpret_cast<ExactSum*>(of_unit), stream);
  kernels::accumulate_norm({.unit = of_unit, .all = all, .flag = all + flag}, stream);
}

double ShardManager::squared_norm(int u) {
  const Unit& unit = units_[static_cast<std::size_t>(u)];
  if (unit.reduced == nullptr || !unit.first_replica) return 0;
  const auto count = static_cast<std::size_t>(parts_.layout->shard_numel(u));
  ExactSum norm2;
  if (gradient_device(u) == disk_device) {
    std::vector<float> gradient(count);
    copy_now(disk_device, gradient.data(), unit.reduced, count * sizeof(float));
    kernels::sum_of_squares(gradient.data(), count, norm2, host_stream);
  } else if (gradient_device(u) == host_device) {
    kernels::sum_of_squares(unit.reduced, count, norm2, host_stream);
  } else {
    kernels::sum_of_squares(unit.reduced, count, *reinterpret_cast<ExactSum*>(unit_counters_), stream_);
    copy_now(parts_.device, norm2.counters().data(), unit_counters_, norm2.counters().size_bytes());
    clear_bytes(unit_counters_, norm2.counters().size_bytes(), stream_);
  }
  return norm2.value();
}

int ShardManager::norm(StepSums& sums) {
  constexpr std::size_t n = ExactSum::num_counters;
  const auto extra = static_cast<std::size_t>(parts_.num_extra);
  const std::span<std::int64_t> all(counters_), over_world = all.subspan(n, n + num_step_counters + extra);
  TESSERA_ASSERT(sums.extra.empty() || sums.extra.size() == extra, "%zu extra counters, %zu expected",
                 sums.extra.size(), extra);
  std::ranges::copy(sums.loss.counters(), over_world.begin());
  over_world[n] = sums.tokens;
  over_world[n + 1] = sums.correct;
  over_world[n + 2] = sums.flags.stop;
  over_world[n + 3] = sums.flags.save;
  over_world[n + 4] = sums.flags.saved;
  std::ranges::copy(sums.extra, over_world.subspan(n + num_step_counters).begin());
  for (std::size_t i = 0; i < all.size(); ++i) all[i] += std::exchange(replicate_counters_[i], 0);
  kernels::carry_sums({.counters = all.data(), .sums = 2}, host_stream);  // norm and loss
  for (const AxisSet axes : parts_.groups->norm) communicator(axes)->all_reduce({"norm"}, all);
  const int unit = unpack(counters_, sums);
  std::ranges::fill(counters_, 0);
  return unit;
}

int ShardManager::unpack(std::span<const std::int64_t> all, StepSums& sums) const {
  constexpr std::size_t n = ExactSum::num_counters;
  const auto extra = static_cast<std::size_t>(parts_.num_extra);
  const auto over_world = all.subspan(n, n + num_step_counters + extra),
             units = all.subspan(2 * n + num_step_counters + extra);
  std::ranges::copy(all.first(n), sums.norm2.counters().begin());
  std::ranges::copy(over_world.first(n), sums.loss.counters().begin());
  sums.norm2.carry();  // callers add them to those of other steps
  sums.loss.carry();
  sums.tokens = over_world[n];
  sums.correct = over_world[n + 1];
  sums.flags = {over_world[n + 2], over_world[n + 3], over_world[n + 4]};
  std::ranges::copy(over_world.last(sums.extra.size()), sums.extra.begin());
  const auto bad = std::ranges::find_if(units, [](std::int64_t count) { return count != 0; });
  return bad == units.end() ? -1 : static_cast<int>(bad - units.begin());
}

std::uint64_t ShardManager::state_hash() const {
  std::uint64_t hash = hash64("");
  std::vector<std::byte> copied;
  const auto mix = [&](const void* data, std::size_t bytes, Device device) {
    if (device != host_device) {
      copied.resize(bytes);
      copy_now(device, copied.data(), data, bytes);
      data = copied.data();
    }
    hash = hash64({static_cast<const char*>(data), bytes}, hash);
  };
  for (std::size_t u = 0; u < units_.size(); ++u) {
    const std::byte* const master = units_[u].master;
    const UpdateView& view = units_[u].view;
    const std::size_t element = size_of(scheduled(static_cast<int>(u)).storage_dtype);
    for (const auto& range : view.ranges) {
      const auto begin = static_cast<std::size_t>(range.begin), length = static_cast<std::size_t>(range.length);
      mix(master + begin * element, length * element, units_[u].device);
      for (std::size_t s = 0; s < view.states.size(); ++s)
        mix(static_cast<const std::byte*>(view.states[s].data) + parts_.states[s].bytes(range.begin),
            parts_.states[s].bytes(range.length), units_[u].device);
    }
  }
  return hash;
}

}  // namespace tessera::shard
