// The table of strategies.

#include "runtime/shard/policy.hpp"

#include <array>
#include <cctype>
#include <vector>

#include "runtime/base/error.hpp"

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

ShardPolicy policy_of(int stage) {
  ShardPolicy policy;
  policy.shard_grads = stage >= 2;
  policy.shard_params = stage >= 3;
  return policy;
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

}  // namespace

Strategy make_strategy(const std::string& word, int world, int group, int ranks_per_node) {
  if (world < 1)
    throw Error(ExitCode::usage, strfmt("a world of %d ranks", world), "strategy " + word, "It takes at least 1.");
  const std::string key = folded(word);
  for (const Row& row : rows) {
    if (key != row.word) continue;
    if (group != 0) check_group(word, row.stage, world, group);
    if (group == 0) {
      group = row.groups ? ranks_per_node : world;
      if (row.groups) check_group(word, row.stage, world, group);
    }
    if (row.stage == 0) return {canonical(0, false), Mesh(world, 1), policy_of(0)};
    const bool hybrid = row.groups || group < world;
    return {canonical(row.stage, hybrid), Mesh(world / group, group), policy_of(row.stage)};
  }
  throw Error(ExitCode::usage, "no sharding strategy is called '" + word + "'", {},
              "Choose 0, 1, 2, 3, NO_SHARD, SHARD_GRAD_OP, FULL_SHARD, HYBRID_SHARD or HYBRID_SHARD_ZERO2.");
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
