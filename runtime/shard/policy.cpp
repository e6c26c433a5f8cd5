// SPDX-License-Identifier: Apache-2.0
// The table of strategies.

#include "runtime/shard/policy.hpp"

#include <fnmatch.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <vector>

#include "runtime/base/error.hpp"
#include "runtime/shard/context.hpp"
#include "runtime/shard/tensor.hpp"

namespace tessera::shard {
namespace {

struct Row {
  const char* word;  // lower case, without '-' and '_'
  int stage;         // 0..3
  bool groups;       // HYBRID: the shard group defaults to the node
};

constexpr std::array<Row, 16> rows{{
    {"0", 0, false},
    {"zero0", 0, false},
    {"noshard", 0, false},
    {"1", 1, false},
    {"zero1", 1, false},
    {"2", 2, false},
    {"zero2", 2, false},
    {"shardgradop", 2, false},
    {"3", 3, false},
    {"zero3", 3, false},
    {"fullshard", 3, false},
    {"hybridshard", 3, true},
    {"hybridshardzero2", 2, true},
    {"hybridzero1", 1, true},
    {"hybridzero2", 2, true},
    {"hybridzero3", 3, true},
}};

std::string folded(const std::string& word) {
  std::string out;
  for (const char c : word) {
    if (c != '-' && c != '_' && c != ' ') out += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  }
  return out;
}

std::string divisors(int world) {
  std::string out;
  for (int d = 1; d <= world; ++d) {
    if (world % d == 0) out += (out.empty() ? "" : ", ") + std::to_string(d);
  }
  return out;
}

/// Sets what is sharded, and over which axes. `hybrid`: over the inner axis alone, with the ranks that share rows.
void set_strategy(UnitPolicy& policy, int stage, bool hybrid, const Mesh& mesh) {
  const AxisSet context = mesh.used(Axis::context), all = Mesh::data_axes() | context;
  policy.shard_grads = stage >= 2;
  policy.shard_params = stage >= 3;
  policy.shard_axes = stage == 0 ? AxisSet() : hybrid ? Axis::shard | context : all;
  policy.replicate_axes = stage == 0 ? all : hybrid ? AxisSet(Axis::replicate) : AxisSet();
}

std::string canonical(int stage, bool hybrid) {
  if (!hybrid) return strfmt("ZeRO-%d", stage);
  return stage == 3 ? "HYBRID_SHARD" : strfmt("hybrid ZeRO-%d", stage);
}

void check_group(const std::string& word, int stage, int world, int group) {
  if (group < 1 || world % group != 0) {
    throw Error(ExitCode::usage, strfmt("a shard group of %d ranks does not divide %d ranks", group, world),
                "strategy " + word, "Choose a group size of " + divisors(world) + ".");
  }
  if (stage == 0 && group > 1) {
    throw Error(ExitCode::usage, strfmt("ZeRO-0 shards nothing, and a shard group of %d ranks was asked for", group),
                "strategy " + word, "Drop the group size, or choose ZeRO-1, 2 or 3.");
  }
}

const Row& row_of(const std::string& word) {
  const auto found = std::ranges::find_if(rows, [key = folded(word)](const Row& row) { return key == row.word; });
  if (found == rows.end())
    throw Error(ExitCode::usage, "no sharding strategy is called '" + word + "'", {},
                "Choose 0, 1, 2, 3, NO_SHARD, SHARD_GRAD_OP, FULL_SHARD, HYBRID_SHARD or HYBRID_SHARD_ZERO2.");
  return *found;
}

}  // namespace

const char* name_of(Recompute recompute) {
  switch (recompute) {
    case Recompute::keep_all: return "keep_all";
    case Recompute::none: return "none";
    case Recompute::selective: return "selective";
    case Recompute::full: return "full";
  }
  return "";
}

bool UnitStrategy::matches(const std::string& unit) const {
  const auto fits = [this](const std::string& name) {
    return ::fnmatch(units.c_str(), name.c_str(), FNM_NOESCAPE) == 0;
  };
  return fits(unit) || fits(unit.substr(0, unit.find(".frozen")));
}

UnitPolicy Strategy::unit_policy(const std::string& unit) const {
  UnitPolicy result = policy;
  for (const UnitStrategy& rule : unit_strategies) {
    if (!rule.matches(unit)) continue;
    const Row& row = row_of(rule.strategy);
    set_strategy(result, row.stage, row.groups, mesh);
  }
  return result;
}

Strategy make_strategy(const std::string& word, int world, int group, int ranks_per_node,
                       std::vector<UnitStrategy> unit_strategies) {
  if (world < 1)
    throw Error(ExitCode::usage, strfmt("a run of %d ranks", world), "strategy " + word, "It takes at least 1.");
  const Row& row = row_of(word);
  const bool grouped_units =
      std::ranges::any_of(unit_strategies, [](const UnitStrategy& unit) { return row_of(unit.strategy).groups; });
  const bool given = group != 0;
  if (given) check_group(word, grouped_units ? 3 : row.stage, world, group);
  if (!given) {
    group = row.groups || grouped_units ? ranks_per_node : world;
    if (row.groups || grouped_units) check_group(word, 3, world, group);
  }
  const bool hybrid = row.stage > 0 && (row.groups || (given && group < world));
  const Mesh mesh = row.stage == 0 && !grouped_units ? Mesh(world, 1) : Mesh(world / group, group);
  Strategy strategy{canonical(row.stage, hybrid), mesh, {}, std::move(unit_strategies)};
  if (!strategy.unit_strategies.empty()) strategy.name += ", mixed";
  set_strategy(strategy.policy, row.stage, hybrid, mesh);
  return strategy;
}

namespace {

/// The mesh with a fastest axis of so many ranks, which it takes from the shard group, or, where nothing is sharded,
/// from the world.
Mesh with_axis(const Strategy& strategy, Axis axis, int ranks) {
  const int shard = strategy.mesh.size(Axis::shard), replicate = strategy.mesh.size(Axis::replicate);
  const bool replicas = shard == 1 && strategy.policy.shard_axes.empty();  // nothing is sharded
  const char* shared = axis == Axis::context ? "rows" : "matrices";
  if (ranks > strategy.mesh.world())
    throw Error(ExitCode::usage,
                strfmt("%d ranks are to share %s, and the run has %d", ranks, shared, strategy.mesh.world()), {},
                strfmt("Start a multiple of %d: tessera launch -n %d", ranks, ranks));
  const int context = strategy.mesh.size(Axis::context), left = replicas ? replicate : shard;
  if (left % ranks != 0) {
    const std::string others = context > 1 ? strfmt("%d ranks that share rows times ", context) : "";
    const bool all = replicas || replicate == 1;
    throw Error(ExitCode::usage,
                others + strfmt("%d ranks that share %s do not divide %s of %d ranks", ranks, shared,
                                all ? "the run" : "a shard group", left * context),
                all ? std::string() : "strategy " + strategy.name,
                "Choose a divisor: " + divisors(left) +
                    (all ? "" : strfmt(", or a --shard_group_size that is a multiple of %d", context * ranks)));
  }
  std::vector<AxisSize> axes = {{Axis::replicate, replicas ? replicate / ranks : replicate},
                                {Axis::shard, replicas ? 1 : shard / ranks}};
  if (context > 1) axes.push_back({Axis::context, context});
  axes.push_back({axis, ranks});
  return Mesh(std::move(axes));
}

void add_axis(UnitPolicy& policy, Axis axis) {
  AxisSet& with = policy.shard_axes.contains(Axis::shard) ? policy.shard_axes : policy.replicate_axes;
  with = with | axis;
}

}  // namespace

Strategy with_context(Strategy strategy, int ranks) {
  TESSERA_ASSERT(ranks >= 1 && strategy.mesh.size(Axis::context) == 1, "%d ranks of a context", ranks);
  if (ranks == 1) return strategy;
  strategy.mesh = with_axis(strategy, Axis::context, ranks);
  add_axis(strategy.policy, Axis::context);
  return strategy;
}

Strategy with_tensor(Strategy strategy, int ranks) {
  TESSERA_ASSERT(ranks >= 1 && strategy.mesh.size(Axis::tensor) == 1, "%d ranks of tensors", ranks);
  if (ranks > 1) strategy.mesh = with_axis(strategy, Axis::tensor, ranks);
  return strategy;
}

UnitPolicy replicated(UnitPolicy policy, const Mesh& mesh) {
  if (mesh.size(Axis::tensor) > 1) add_axis(policy, Axis::tensor);
  return policy;
}

std::vector<Strategy> all_strategies(int world, int ranks_per_node) {
  std::vector<Strategy> out;
  for (const char* word : {"zero0", "zero1", "zero2", "zero3"})
    out.push_back(make_strategy(word, world, 0, ranks_per_node));
  if (ranks_per_node > 1 && ranks_per_node < world && world % ranks_per_node == 0) {
    for (const char* word : {"HYBRID_SHARD", "HYBRID_SHARD_ZERO2"})
      out.push_back(make_strategy(word, world, 0, ranks_per_node));
  }
  return out;
}

}  // namespace tessera::shard
