// SPDX-License-Identifier: Apache-2.0
#include "runtime/shard/groups.hpp"

#include <algorithm>

namespace tessera::shard {

static int index_in(const std::vector<AxisSet>& all, std::size_t first, std::size_t last, AxisSet axes) {
  for (std::size_t g = first; g < last; ++g)
    if (all[g] == axes) return static_cast<int>(g);
  return -1;
}

int Groups::index_of(AxisSet axes) const { return index_in(all, 0, first_exchange, axes); }
int Groups::exchange_index_of(AxisSet axes) const { return index_in(all, first_exchange, all.size(), axes); }

Groups groups_of(const std::vector<ScheduledUnit>& units, const Mesh& mesh, const std::vector<ModuleUse>& modules,
                 const std::vector<ReferenceModel>& references) {
  Groups groups;
  const auto add = [&](AxisSet axes) {
    if (!axes.empty() && groups.index_of(axes) < 0) groups.all.push_back(axes);
    groups.first_exchange = groups.all.size();
  };
  for (const ScheduledUnit& unit : units) {
    add(unit.shard_axes);
    if (unit.trainable) add(unit.replicate_axes);
  }
  const AxisSet world = mesh.used(mesh.axes());
  const bool at_once = groups.index_of(world) >= 0;
  if (at_once) groups.norm = {world};
  for (int a = num_axes - 1; a >= 0 && !at_once; --a) {
    const auto axis = static_cast<Axis>(a);
    if (!world.contains(axis)) continue;
    add(axis);
    groups.norm.push_back(axis);
  }
  const auto add_exchanges = [&](const std::vector<ModuleUse>& of) {
    for (const ModuleUse& module : of)
      for (const ModuleExchange& exchange : module.exchanges)
        if (!exchange.axes.empty() && groups.exchange_index_of(exchange.axes) < 0) groups.all.push_back(exchange.axes);
  };
  add_exchanges(modules);
  for (const ReferenceModel& reference : references) add_exchanges(reference.modules);
  return groups;
}

}  // namespace tessera::shard
