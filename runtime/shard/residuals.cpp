// SPDX-License-Identifier: Apache-2.0
// Error feedback: where residuals lie, and their sum over ranks, which checkpoints hold.
#include <algorithm>

#include "kernels/reduce.hpp"
#include "runtime/base/error.hpp"
#include "runtime/base/transfer.hpp"
#include "runtime/shard/manager.hpp"
#include "runtime/shard/memory.hpp"

namespace tessera::shard {

void ShardManager::bind_int8(int u) {
  const ScheduledUnit& record = scheduled(u);
  Unit& unit = units_[static_cast<std::size_t>(u)];
  const auto staging = [&](AxisSet axes) {
    const auto memory = parts_.arena->memory({SlotUse::int8, parts_.groups->index_of(axes)});
    TESSERA_ASSERT(!memory.empty(), "no int8 staging for %s", axes.str().c_str());
    return memory;
  };
  if (record.int8.gather || record.int8.reduce_scatter) unit.shards_int8 = staging(record.shard_axes);
  if (record.int8.all_reduce) unit.replicas_int8 = staging(record.replicate_axes);
  if (!record.trainable || !shard::has_residuals(*parts_.train)) return;
  const auto floats = [&](SlotUse use) { return reinterpret_cast<float*>(parts_.arena->data({use, u})); };
  const bool feedback = record.int8.error_feedback;
  if (feedback && record.int8.reduce_scatter) unit.scatter_residual = floats(SlotUse::scatter_residual);
  if (feedback && record.int8.all_reduce) unit.reduce_residual = floats(SlotUse::reduce_residual);
  unit.residual_sum = floats(SlotUse::residual_sum);
}

TensorView ShardManager::residual_sum(int u) const {
  float* const sum = units_[static_cast<std::size_t>(u)].residual_sum;
  if (sum == nullptr) return {};
  return {sum, DType::f32, Shape{parts_.layout->shard_numel(u)}, parts_.device};
}

void ShardManager::collect_residuals() {
  for (int u = 0; u < parts_.layout->num_units(); ++u) {
    const Unit& unit = units_[static_cast<std::size_t>(u)];
    if (unit.scatter_residual == nullptr && unit.reduce_residual == nullptr) continue;
    const CollectiveLabel label{"residual", parts_.layout->unit_name(u).c_str(), -1};
    const auto chunk = static_cast<std::size_t>(parts_.layout->shard_numel(u));
    if (unit.scatter_residual == nullptr) {
      copy_bytes(unit.residual_sum, unit.reduce_residual, chunk * sizeof(float), stream_);
    } else {
      on(*unit.shards, stream_).reduce_scatter(label, unit.scatter_residual, unit.residual_sum, chunk);
      if (unit.reduce_residual != nullptr) kernels::add_to(unit.reduce_residual, unit.residual_sum, chunk, stream_);
    }
    if (unit.replicas != nullptr) on(*unit.replicas, stream_).all_reduce(label, unit.residual_sum, chunk);
  }
  if (parts_.device != host_device) synchronize(parts_.device);  // any stream may read them now
}

void ShardManager::restore_residuals() {
  const auto clear = [this](float* x, std::size_t count) { clear_bytes(x, count * sizeof(float), stream_); };
  for (int u = 0; u < parts_.layout->num_units(); ++u) {
    const Unit& unit = units_[static_cast<std::size_t>(u)];
    if (unit.residual_sum == nullptr) continue;
    const auto chunk = static_cast<std::size_t>(parts_.layout->shard_numel(u));
    if (unit.scatter_residual != nullptr) clear(unit.scatter_residual, static_cast<std::size_t>(scheduled(u).numel));
    if (unit.reduce_residual != nullptr) clear(unit.reduce_residual, chunk);
    float* own = unit.reduce_residual;
    if (own == nullptr && unit.scatter_residual != nullptr)
      own = unit.scatter_residual + static_cast<std::size_t>(unit.index) * chunk;
    if (own == nullptr) clear(unit.residual_sum, chunk);  // the unit sends its gradients as they are
    else if (unit.first_replica) copy_bytes(own, unit.residual_sum, chunk * sizeof(float), stream_);
  }
  if (parts_.device != host_device) synchronize(parts_.device);
}

}  // namespace tessera::shard
