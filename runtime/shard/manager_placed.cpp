// SPDX-License-Identifier: Apache-2.0
// ShardManager: states that are offloaded.
#include <algorithm>
#include <vector>

#include "kernels/convert.hpp"
#include "runtime/base/disk_memory.hpp"
#include "runtime/base/transfer.hpp"
#include "runtime/shard/manager.hpp"
#include "runtime/shard/memory.hpp"

namespace tessera::shard {

/// The views of an update in the staging slots.
void ShardManager::bind_staged(int u) {
  const ScheduledUnit& record = scheduled(u);
  Unit& unit = units_[static_cast<std::size_t>(u)];
  const std::int64_t numel = parts_.layout->shard_numel(u);
  const StagedUpdate at(record, numel, parts_.states);
  const Device device = record.update_on_host ? host_device : parts_.device;
  const Schedule& train = *parts_.train;
  for (std::size_t s = 0; s < train.slots.size(); ++s) {
    const Slot& slot = train.slots[s];
    if (slot.kind != Slot::Kind::stage || slot.state != StateKind::optimizer || slot.units.empty()) continue;
    std::byte* const stage = this->slot(train, static_cast<int>(s));
    UpdateView view = unit.view;
    view.device = device;
    view.master = reinterpret_cast<float*>(stage + at.master);
    for (std::size_t k = 0; k < view.states.size(); ++k) {
      view.states[k].data = stage + at.states[k];
      view.states[k].device = device;
    }
    if (at.grad >= 0) view.grad = reinterpret_cast<const float*>(stage + at.grad);
    view.low_precision.device = device;
    if (at.copy >= 0) view.low_precision.data = stage + at.copy;
    unit.staged.emplace_back(stage, std::move(view));
  }
}

const UpdateView& ShardManager::update_view(const Instruction& update, const SlotMemory& memory) const {
  if (memory.stage == nullptr) return update_view(update.unit);
  const auto& staged = units_[static_cast<std::size_t>(update.unit)].staged;
  const auto found = std::ranges::find(staged, memory.stage, &std::pair<const std::byte*, UpdateView>::first);
  TESSERA_ASSERT(found != staged.end(), "unit %d is updated in a slot of other states", update.unit);
  return found->second;
}

void ShardManager::copy_updated(int u, const UpdateView& view) const {
  const ScheduledUnit& record = scheduled(u);
  if (has_host_copy(record) && !record.has_separate_masters())
    copy_bytes(units_[static_cast<std::size_t>(u)].source, view.master,
               static_cast<std::size_t>(view.numel) * sizeof(float), host_stream);
}

void ShardManager::for_each_staged(int u, std::byte* stage, const auto& move) const {
  const ScheduledUnit& record = scheduled(u);
  const Unit& unit = units_[static_cast<std::size_t>(u)];
  const std::int64_t numel = parts_.layout->shard_numel(u);
  const StagedUpdate at(record, numel, parts_.states);
  move(unit.master, unit.device, stage + at.master, static_cast<std::size_t>(numel) * sizeof(float));
  for (std::size_t k = 0; k < unit.view.states.size(); ++k)
    move(static_cast<std::byte*>(unit.view.states[k].data), unit.device, stage + at.states[k],
         parts_.states[k].bytes(numel));
  if (at.copy >= 0)
    move(unit.source, unit.source_device, stage + at.copy,
         static_cast<std::size_t>(numel) * size_of(record.param_dtype));
}

/// What fetches of params read, and the shard that gathers read instead of master weights on the host.
void ShardManager::bind_source(int u, std::byte* interval) {
  const ScheduledUnit& record = scheduled(u);
  Unit& unit = units_[static_cast<std::size_t>(u)];
  if (!record.optimizer_offloaded() && !record.params_offloaded()) return;
  unit.source = has_host_copy(record) ? parts_.arena->data({SlotUse::host_copy, u}) : unit.master;
  unit.source_device = has_host_copy(record) && record.placement.params != Tier::disk ? host_device : unit.device;
  if (!record.params_offloaded()) unit.shard = interval != nullptr ? interval : parts_.arena->data({SlotUse::shard, u});
}

namespace {

/// Converts a shard to another type, between any devices; on disk, and from it, in parts.
void convert_shard(const TensorView& from, const TensorView& to, StreamView stream) {
  if (from.device == to.device && from.device != disk_device)
    return kernels::convert({.from = from, .to = to}, from.device == host_device ? host_stream : stream);
  const auto most = static_cast<std::int64_t>(host_staging_bytes / sizeof(float));
  std::vector<std::byte> read(host_staging_bytes), converted(host_staging_bytes);
  for (std::int64_t done = 0; done < from.numel(); done += most) {
    const TensorView source = from.rows(done, std::min(most, from.numel() - done)),
                     target = to.rows(done, source.numel());
    copy_now(source.device, read.data(), source.data, source.nbytes());
    kernels::convert(
        {.from = {read.data(), source.dtype, source.shape}, .to = {converted.data(), target.dtype, target.shape}},
        host_stream);
    copy_now(target.device, target.data, converted.data(), target.nbytes());
  }
}

}  // namespace

void ShardManager::cast_masters() {
  for (int u = 0; u < parts_.layout->num_units(); ++u) {
    const Unit& unit = units_[static_cast<std::size_t>(u)];
    const ScheduledUnit& record = scheduled(u);
    const bool host_copy = has_host_copy(record);
    std::byte* const copy = host_copy ? unit.source : unit.low_precision;
    const Shape shape{parts_.layout->shard_numel(u)};
    const auto bytes = static_cast<std::size_t>(shape.numel()) * size_of(record.param_dtype);
    if (host_copy && !record.has_separate_masters()) copy_now(unit.device, copy, unit.master, bytes);
    else if (copy != nullptr)
      convert_shard(shard(u), {copy, record.param_dtype, shape, host_copy ? unit.source_device : unit.device}, stream_);
    if (unit.shard != nullptr) copy_now(parts_.device, unit.shard, unit.source, bytes);
  }
}

namespace {

/// The copies of a fetch or a store, between tiers and memory that a stream reaches. Those of a disk are made together,
/// at its end.
class TierCopies {
 public:
  explicit TierCopies(StreamView stream) : stream_(stream) {}
  /// `tier`: the device of `from` in a fetch, of `to` in a store.
  void fetch(std::byte* to, const std::byte* from, Device tier, std::size_t bytes) {
    if (tier == disk_device) disk_.push_back({const_cast<std::byte*>(from), to, bytes});
    else copy_bytes(to, from, bytes, stream_);
  }
  void store(std::byte* to, const std::byte* from, Device tier, std::size_t bytes) {
    if (tier == disk_device) disk_.push_back({to, const_cast<std::byte*>(from), bytes});
    else copy_bytes(to, from, bytes, stream_);
  }
  void read_disk() const {
    if (!disk_.empty()) DiskMemory::of(disk_.front().disk)->read(disk_);
  }
  void write_disk() const {
    if (!disk_.empty()) DiskMemory::of(disk_.front().disk)->write(disk_);
  }

 private:
  StreamView stream_;
  std::vector<DiskMemory::Copy> disk_;
};

}  // namespace

void ShardManager::fetch(const Instruction& instruction, const SlotMemory& memory, StreamView stream) {
  const int u = instruction.unit;
  const Unit& unit = units_[static_cast<std::size_t>(u)];
  const auto numel = static_cast<std::size_t>(parts_.layout->shard_numel(u));
  const Device gradients = gradient_device(u);
  const auto bytes = numel * sizeof(float);
  TierCopies copies(stream);
  if (instruction.state == StateKind::params) {
    std::byte* const to = memory.stage != nullptr ? memory.stage : unit.shard;
    copies.fetch(to, unit.source, unit.source_device, numel * size_of(fetched_dtype(scheduled(u))));
  } else if (instruction.state == StateKind::optimizer) {
    for_each_staged(u, memory.stage, [&](const std::byte* home, Device device, std::byte* staged, std::size_t count) {
      copies.fetch(staged, home, device, count);
    });
    const StagedUpdate at(scheduled(u), parts_.layout->shard_numel(u), parts_.states);
    if (at.grad >= 0)
      copies.fetch(memory.stage + at.grad, reinterpret_cast<const std::byte*>(unit.reduced), gradients, bytes);
  } else {
    for (std::size_t p = 0; p < unit.accumulators.size(); ++p)
      copies.fetch(reinterpret_cast<std::byte*>(accumulator(instruction, static_cast<int>(p), memory)),
                   reinterpret_cast<const std::byte*>(unit.accumulators[p]), gradients, bytes);
  }
  copies.read_disk();
}

void ShardManager::store(const Instruction& instruction, const SlotMemory& memory, StreamView stream) {
  const int u = instruction.unit;
  const Unit& unit = units_[static_cast<std::size_t>(u)];
  const Device gradients = gradient_device(u);
  TierCopies copies(stream);
  if (instruction.state == StateKind::optimizer) {
    for_each_staged(u, memory.stage, [&](std::byte* home, Device device, const std::byte* staged, std::size_t count) {
      copies.store(home, staged, device, count);
    });
  } else {
    const auto bytes = static_cast<std::size_t>(parts_.layout->shard_numel(u)) * sizeof(float);
    for (std::size_t p = 0; p < unit.accumulators.size(); ++p)
      copies.store(reinterpret_cast<std::byte*>(unit.accumulators[p]),
                   reinterpret_cast<const std::byte*>(accumulator(instruction, static_cast<int>(p), memory)), gradients,
                   bytes);
  }
  copies.write_disk();
}

}  // namespace tessera::shard
