#include "runtime/plan/units.hpp"

#include <algorithm>

#include "runtime/base/error.hpp"

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

/// Where a module has several units, its name is that of the trainable one; the others are "h.3.frozen", or with their
/// storage types, "h.3.frozen.bf16".
void name_apart(std::vector<shard::UnitSpec>& units) {
  for (auto first = units.begin(), end = first; first != units.end(); first = end) {
    end = std::find_if(first, units.end(), [&](const shard::UnitSpec& unit) { return unit.name != first->name; });
    const auto frozen = std::count_if(first, end, [](const shard::UnitSpec& unit) { return !unit.trainable; });
    if (end - first == 1) continue;
    const std::string name = first->name;
    for (auto unit = first; unit != end; ++unit)
      if (!unit->trainable)
        unit->name = name + ".frozen" + (frozen > 1 ? std::string(".") + name_of(unit->storage_dtype) : "");
  }
}

void check_unit_strategies(const shard::Strategy& strategy, const std::vector<shard::UnitSpec>& units) {
  for (const shard::UnitStrategy& rule : strategy.unit_strategies) {
    if (std::ranges::any_of(units, [&](const shard::UnitSpec& unit) { return rule.matches(unit.name); })) continue;
    std::string names;
    for (const shard::UnitSpec& unit : units) names += (names.empty() ? "" : ", ") + unit.name;
    throw Error(ExitCode::usage, "no unit of the model matches '" + rule.units + "'", "unit_strategy",
                "The units are " + names);
  }
}

}  // namespace

std::vector<shard::UnitSpec> make_units(const models::Model& model, const shard::Strategy& strategy) {
  const bool by_group = strategy.policy.experts == shard::ExpertUnits::block;
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
  name_apart(units);
  check_unit_strategies(strategy, units);
  for (shard::UnitSpec& unit : units) unit.policy = strategy.unit_policy(unit.name);
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
