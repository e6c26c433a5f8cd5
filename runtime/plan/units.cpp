#include "runtime/plan/units.hpp"

#include <algorithm>

namespace tessera::plan {

namespace {

/// The unit of a module, or of its group, for parameters like this one; new if there is none yet. Units of one name are
/// the last of the list.
shard::UnitSpec& unit_for(std::vector<shard::UnitSpec>& units, const std::string& name, const ParamSpec& param) {
  for (auto unit = units.rbegin(); unit != units.rend() && unit->name == name; ++unit)
    if (unit->trainable == param.trainable && unit->storage_dtype == param.storage_dtype) return *unit;
  return units.emplace_back(
      shard::UnitSpec{.name = name, .params = {}, .trainable = param.trainable, .storage_dtype = param.storage_dtype});
}

}  // namespace

std::vector<shard::UnitSpec> make_units(const models::Model& model, const shard::ShardPolicy& policy) {
  const bool by_group = policy.experts == shard::ExpertUnits::block;
  std::vector<shard::UnitSpec> units;
  std::vector<bool> taken(model.params.size(), false);
  for (const auto& module : model.modules) {
    const std::string name = by_group ? module->group() : module->name();
    for (const int param : module->params()) {
      if (taken[static_cast<std::size_t>(param)]) continue;
      taken[static_cast<std::size_t>(param)] = true;
      unit_for(units, name, model.params[static_cast<std::size_t>(param)]).params.push_back(param);
    }
  }
  for (shard::UnitSpec& unit : units) unit.policy = policy;
  // Where a module has both, the name is that of its trainable part.
  for (auto unit = units.begin(); unit != units.end(); ++unit)
    if (const auto next = std::next(unit); next != units.end() && next->name == unit->name)
      (unit->trainable ? *next : *unit).name += ".frozen";
  return units;
}

std::vector<shard::ModuleUse> module_uses(const models::Model& model, const std::vector<shard::UnitSpec>& units,
                                          models::Phase phase) {
  std::vector<int> unit_of(model.params.size(), -1);
  for (std::size_t u = 0; u < units.size(); ++u)
    for (const int param : units[u].params) unit_of[static_cast<std::size_t>(param)] = static_cast<int>(u);

  std::vector<shard::ModuleUse> uses;
  for (std::size_t i = 0; i < model.modules.size(); ++i) {
    const auto& module = *model.modules[i];
    std::vector<int> all, trained;
    for (const int param : module.params()) {
      all.push_back(unit_of[static_cast<std::size_t>(param)]);
      if (model.params[static_cast<std::size_t>(param)].trainable) trained.push_back(all.back());
    }
    for (auto* list : {&all, &trained}) {
      std::sort(list->begin(), list->end());
      list->erase(std::unique(list->begin(), list->end()), list->end());
    }
    shard::ModuleUse use{module.name(), all, all, trained, i > 0 && i + 1 < model.modules.size()};
    if (phase == models::Phase::train && !module.train_forward_reads_params()) use.forward_units.clear();
    if (!module.backward_reads_params()) use.backward_units.clear();
    uses.push_back(std::move(use));
  }
  return uses;
}

}  // namespace tessera::plan
