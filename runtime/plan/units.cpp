// SPDX-License-Identifier: Apache-2.0
#include "runtime/plan/units.hpp"

#include <algorithm>
#include <map>
#include <set>

#include "models/reference.hpp"
#include "runtime/base/error.hpp"
#include "runtime/shard/tensor.hpp"

namespace tessera::plan {

namespace {

/// A transformer block: consecutive modules of one group, as indices into Model::modules.
struct Block {
  std::string name;
  std::size_t first = 0, last = 0;
  std::int64_t numel = 0;  // of the parameters it reads
};

/// The blocks of a model: its modules between embedding and head.
std::vector<Block> blocks_of(const models::Model& model) {
  std::vector<Block> blocks;
  for (std::size_t m = 0; m < model.modules.size(); ++m) {
    if (!model.is_block(m)) continue;
    const models::Module& module = *model.modules[m];
    if (blocks.empty() || blocks.back().name != module.group()) blocks.push_back({module.group(), m, m, 0});
    blocks.back().last = m;
    for (const int param : module.params())
      blocks.back().numel += model.params[static_cast<std::size_t>(param)].elements();
  }
  return blocks;
}

/// "h.0" and "h.2": "h.0-2".
std::string range_name(const std::string& first, const std::string& last) {
  if (first == last) return first;
  const std::size_t dot = first.rfind('.') + 1;  // 0: none
  return first + "-" + (first.compare(0, dot, last, 0, dot) == 0 ? last.substr(dot) : last);
}

/// Where the blocks of each unit end: indices of the last ones.
std::vector<std::size_t> last_blocks(const std::vector<Block>& blocks, const shard::WrapPolicy& wrap) {
  std::vector<std::size_t> last;
  std::int64_t count = 0, numel = 0;
  for (std::size_t b = 0; b < blocks.size(); ++b) {
    ++count;
    numel += blocks[b].numel;
    const bool full =
        wrap.kind == shard::WrapPolicy::Kind::size ? numel >= wrap.min_num_params : count >= wrap.blocks_per_unit;
    if (!full && b + 1 < blocks.size()) continue;
    last.push_back(b);
    count = numel = 0;
  }
  return last;
}

/// The name of the unit that has each module's own parameters.
std::vector<std::string> unit_names(const models::Model& model, const shard::ShardPolicy& policy) {
  if (policy.wrap.kind == shard::WrapPolicy::Kind::model)
    return std::vector<std::string>(model.modules.size(), whole_model_name);
  const bool by_group = policy.experts == shard::ExpertUnits::block;
  std::vector<std::string> names;
  for (const auto& module : model.modules) names.push_back(by_group ? module->group() : module->name());
  const std::vector<Block> blocks = blocks_of(model);
  std::size_t first = 0;
  for (const std::size_t last : last_blocks(blocks, policy.wrap)) {
    const std::string range = range_name(blocks[first].name, blocks[last].name);
    for (std::size_t b = first; b <= last && first < last; ++b)
      for (std::size_t m = blocks[b].first; m <= blocks[b].last; ++m) {
        const bool in_group = names[m].starts_with(blocks[b].name);
        names[m] = range + (in_group ? names[m].substr(blocks[b].name.size()) : "." + names[m]);
      }
    first = last + 1;
  }
  return names;
}

using UnitsOfName = std::map<std::string, std::vector<std::size_t>>;  // name → units, which differ in their parameters

/// The unit of that name for parameters like this one, as an index; new if there is none yet.
std::size_t unit_for(std::vector<shard::UnitSpec>& units, std::vector<std::size_t>& of_name, const std::string& name,
                     const ParamSpec& param) {
  for (const std::size_t u : of_name)
    if (units[u].trainable == param.trainable && units[u].storage_dtype == param.storage_dtype &&
        units[u].adapters == param.adapter && units[u].split == param.placement.is_split())
      return u;
  of_name.push_back(units.size());
  units.push_back({.name = name,
                   .params = {},
                   .trainable = param.trainable,
                   .adapters = param.adapter,
                   .split = param.placement.is_split(),
                   .storage_dtype = param.storage_dtype});
  return of_name.back();
}

/// Where several units have one name, adapters are "h.3.lora". If there are several others, the name stays that of the
/// trainable one; frozen ones are "h.3.frozen", or with their storage types, "h.3.frozen.bf16". Beside units of split
/// parameters, those of replicated ones are named so apart, and end in ".replicated".
void name_apart(std::vector<shard::UnitSpec>& units, const UnitsOfName& names) {
  for (const auto& [name, of_name] : names) {
    const bool has_split = std::ranges::any_of(of_name, [&](std::size_t u) { return units[u].split; });
    for (const bool split : {false, true}) {
      std::vector<std::size_t> alike;
      std::ranges::copy_if(of_name, std::back_inserter(alike), [&](std::size_t u) { return units[u].split == split; });
      const auto frozen = std::ranges::count_if(alike, [&](std::size_t u) { return !units[u].trainable; });
      const auto adapters = std::ranges::count_if(alike, [&](std::size_t u) { return units[u].adapters; });
      const bool apart = static_cast<std::ptrdiff_t>(alike.size()) - adapters > 1;
      for (const std::size_t u : alike) {
        if (of_name.size() > 1 && units[u].adapters) units[u].name = name + ".lora";
        else if (apart && !units[u].trainable)
          units[u].name = name + ".frozen" + (frozen > 1 ? std::string(".") + name_of(units[u].storage_dtype) : "");
        if (has_split && !split) units[u].name += ".replicated";
      }
    }
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
  std::vector<std::string> names = unit_names(model, strategy.policy);
  std::vector<const models::Module*> modules;
  for (const auto* list : {&model.modules, &model.reference})
    for (const auto& module : *list) modules.push_back(module.get());
  for (const auto& module : model.reference) names.push_back(module->name());
  std::vector<shard::UnitSpec> units;
  UnitsOfName of_name;
  std::set<int> taken;  // parameters
  for (std::size_t m = 0; m < modules.size(); ++m) {
    std::vector<std::size_t> begun;  // units with parameters of this module
    for (const int param : modules[m]->params()) {
      if (!taken.insert(param).second) continue;
      const std::size_t u = unit_for(units, of_name[names[m]], names[m], model.params[static_cast<std::size_t>(param)]);
      if (std::ranges::find(begun, u) == begun.end()) {
        begun.push_back(u);
        units[u].module_firsts.push_back(param);
      }
      units[u].params.push_back(param);
    }
  }
  name_apart(units, of_name);
  check_unit_strategies(strategy, units);
  for (shard::UnitSpec& unit : units) {
    unit.policy = strategy.unit_policy(unit.name);
    if (!unit.split) unit.policy = shard::replicated(unit.policy, strategy.mesh);
    if (unit.storage_dtype == DType::u8) unit.policy.param_dtype = DType::u8;  // quantized: gathered as it is kept
  }
  return units;
}

/// Units by parameter.
static std::map<int, int> units_of_params(const std::vector<shard::UnitSpec>& units) {
  std::map<int, int> unit_of;
  for (std::size_t u = 0; u < units.size(); ++u)
    for (const int param : units[u].params) unit_of[param] = static_cast<int>(u);
  return unit_of;
}

static AxisSet axes_of(models::RankGroup group, const Mesh& mesh) {
  switch (group) {
    case models::RankGroup::data: return mesh.used(Mesh::data_axes());
    case models::RankGroup::context: return mesh.used(Axis::context);
    case models::RankGroup::tensor: return mesh.used(Axis::tensor);
    case models::RankGroup::expert: return mesh.used(Axis::expert);
  }
  return {};
}

/// In generation every rank has all tokens (models::BatchShape::whole): nothing is gathered, sums are of all, and what
/// each rank would get of its own tokens, it gets of all.
static ExchangeKind of_whole(ExchangeKind kind) {
  if (kind == ExchangeKind::all_gather) return ExchangeKind::copy;
  if (kind == ExchangeKind::all_to_all) return ExchangeKind::all_gather;
  return kind == ExchangeKind::reduce_scatter ? ExchangeKind::all_reduce : kind;
}

static void add_stages(const models::Module& module, models::Phase phase, const Mesh& mesh, shard::ModuleUse& use) {
  models::ModuleStages of = module.stages(phase);
  for (models::ModuleStages::Exchange& exchange : of.exchanges)
    if (phase == models::Phase::logits && exchange.over == models::RankGroup::tensor)
      exchange.forward = of_whole(exchange.forward);
  use.values = std::move(of.values);
  use.stages = std::move(of.stages);
  for (const models::ModuleStages::Exchange& exchange : of.exchanges)
    use.exchanges.push_back({exchange, axes_of(exchange.over, mesh)});
}

std::vector<shard::ReferenceModel> references(const models::Model& model, const std::vector<shard::UnitSpec>& units,
                                              const Mesh& mesh) {
  if (model.reference.empty()) return {};
  const auto unit_of = units_of_params(units);
  shard::ReferenceModel reference{"reference", {}};
  for (const auto& module : model.reference) {
    std::string name = module->name();  // a schedule's text has the reference's name before it
    if (name.starts_with(models::reference_prefix)) name.erase(0, std::string_view(models::reference_prefix).size());
    shard::ModuleUse use{.name = std::move(name)};
    if (module->forward_reads_params(models::Phase::eval))
      for (const int param : module->params()) use.forward_units.push_back(unit_of.at(param));
    std::sort(use.forward_units.begin(), use.forward_units.end());
    use.forward_units.erase(std::unique(use.forward_units.begin(), use.forward_units.end()), use.forward_units.end());
    add_stages(*module, models::Phase::eval, mesh, use);
    reference.modules.push_back(std::move(use));
  }
  return {std::move(reference)};
}

std::vector<shard::ModuleUse> module_uses(const models::Model& model, const std::vector<shard::UnitSpec>& units,
                                          models::Phase phase, const Mesh& mesh) {
  const auto unit_of = units_of_params(units);
  std::vector<shard::ModuleUse> uses;
  for (std::size_t i = 0; i < model.modules.size(); ++i) {
    const auto& module = *model.modules[i];
    std::vector<int> all, trained;
    for (const int param : module.params()) {
      all.push_back(unit_of.at(param));
      if (model.params[static_cast<std::size_t>(param)].trainable) trained.push_back(all.back());
    }
    for (auto* list : {&all, &trained}) {
      std::sort(list->begin(), list->end());
      list->erase(std::unique(list->begin(), list->end()), list->end());
    }
    shard::ModuleUse use{module.name(), all, all, trained, model.is_block(i)};
    if (!module.forward_reads_params(phase)) use.forward_units.clear();
    if (!module.backward_reads_params()) use.backward_units.clear();
    add_stages(module, phase, mesh, use);
    uses.push_back(std::move(use));
  }
  return uses;
}

}  // namespace tessera::plan
