// SPDX-License-Identifier: Apache-2.0
#include "runtime/shard/groups.hpp"

#include <algorithm>

namespace tessera::shard {

int Groups::index_of(AxisSet axes) const {
  const auto found = std::ranges::find(all, axes);
  return found == all.end() ? -1 : static_cast<int>(found - all.begin());
}

Groups groups_of(const std::vector<ScheduledUnit>& units, const Mesh& mesh) {
  Groups groups;
  const auto add = [&](AxisSet axes) {
    if (!axes.empty() && groups.index_of(axes) < 0) groups.all.push_back(axes);
  };
  for (const ScheduledUnit& unit : units) {
    add(unit.shard_axes);
    if (unit.trainable) add(unit.replicate_axes);
  }
  const AxisSet world = mesh.used(mesh.axes());
  if (groups.index_of(world) >= 0) {
    groups.norm = {world};
    return groups;
  }
  for (int a = num_axes - 1; a >= 0; --a) {
    const auto axis = static_cast<Axis>(a);
    if (!world.contains(axis)) continue;
    add(axis);
    groups.norm.push_back(axis);
  }
  return groups;
}

}  // namespace tessera::shard
