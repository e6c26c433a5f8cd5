// SPDX-License-Identifier: Apache-2.0
#pragma once
// Small models, and the schedule inputs that the tests of this folder make of them.

#include <algorithm>
#include <string>
#include <vector>

#include "runtime/shard/builder.hpp"

namespace tessera::test {

/// A model: its modules, and the sizes of its units.
struct ModelShape {
  int num_blocks = 2;
  int blocks_per_unit = 1;  // the last unit of blocks may have fewer
  bool tied = true;         // the head reads, and contributes to, the embedding
  bool adapters = false;    // one more unit, which every block reads and contributes to
  bool frozen_embed = false;
  int frozen_blocks = 0;                                                                 // the first ones
  enum class Reference : unsigned char { none, base, own } reference = Reference::none;  // without adapters; own units
  bool embed_reads_late = false;  // the first module's backward reads its unit, and contributes to that of the head
  std::int64_t embed = 5000, block = 1000, head = 100;
};

/// A reference model: the same modules without adapters, or as many with frozen units of its own.
inline void add_reference(shard::ScheduleInput& in, const ModelShape& shape) {
  shard::ReferenceModel reference{"reference", {}};
  for (const shard::ModuleUse& module : in.modules) {
    std::vector<int> units = module.forward_units.empty() ? module.backward_units : module.forward_units;
    if (shape.adapters) std::erase(units, static_cast<int>(in.units.size()) - 1);
    if (shape.reference == ModelShape::Reference::own) units = {static_cast<int>(in.units.size())};
    reference.modules.push_back({.name = module.name, .forward_units = units});
    if (shape.reference == ModelShape::Reference::own)
      in.units.push_back({.name = "reference." + module.name, .numel = shape.block, .trainable = false});
  }
  in.references.push_back(std::move(reference));
}

/// embed, h.0 …, head, as in GPT-2: in training, the head's forward and the embedding's backward read nothing.
inline shard::ScheduleInput schedule_input(const ModelShape& shape, const shard::Strategy& strategy, int num_micro) {
  shard::ScheduleInput in;
  in.mesh = strategy.mesh;
  in.policy = strategy.policy;
  in.num_micro = num_micro;
  const auto unit = [&](std::string name, std::int64_t numel) {
    in.units.push_back({.name = std::move(name), .numel = numel});
    return static_cast<int>(in.units.size()) - 1;
  };
  using Units = std::vector<int>;
  const int embed = unit("embed", shape.embed);
  Units blocks;  // the unit of each
  for (int i = 0; i < shape.num_blocks; ++i) {
    if (i % shape.blocks_per_unit != 0) {
      blocks.push_back(blocks.back());
      continue;
    }
    const int last = std::min(i + shape.blocks_per_unit, shape.num_blocks) - 1;
    std::string name = "h." + std::to_string(i);
    if (last > i) name += "-" + std::to_string(last);
    blocks.push_back(unit(name, (last - i + 1) * shape.block));
  }
  const int head = unit("head", shape.head);
  const int adapters = shape.adapters ? unit("adapters", shape.head) : -1;
  in.units[static_cast<std::size_t>(embed)].trainable = !shape.frozen_embed;
  for (int i = 0; i < shape.frozen_blocks; ++i)
    in.units[static_cast<std::size_t>(blocks[static_cast<std::size_t>(i)])].trainable = false;
  const auto trainable = [&](Units units) {
    std::erase_if(units, [&](int u) { return !in.units[static_cast<std::size_t>(u)].trainable; });
    return units;
  };

  if (shape.embed_reads_late) in.modules.push_back({"embed", {embed}, {embed}, {head}, false});
  else in.modules.push_back({"embed", {embed}, {}, trainable({embed}), false});
  for (int i = 0; i < shape.num_blocks; ++i) {
    const int b = blocks[static_cast<std::size_t>(i)];
    const Units reads = shape.adapters ? Units{b, adapters} : Units{b};
    in.modules.push_back({"h." + std::to_string(i), reads, reads, trainable(reads), true});
  }
  const Units reads = shape.tied ? Units{embed, head} : Units{head};
  in.modules.push_back({"head", {}, reads, trainable(reads), false});
  if (shape.reference != ModelShape::Reference::none) add_reference(in, shape);
  return in;
}

/// Every module saves something; with checkpointing, blocks save it again.
inline void save_activations(shard::ScheduleInput& in) {
  for (shard::ModuleUse& module : in.modules) {
    module.saves_again = module.recomputable && recomputes(in.policy.recompute);
    module.saves = !module.saves_again || in.policy.recompute == shard::Recompute::selective;
  }
}

/// Blocks of three stages with an exchange after each of the first two, as attention has under tensor parallelism: what
/// the first leaves is gathered, and what the second leaves is scattered; the third reads what the first has written
/// too.
inline void exchange_activations(shard::ScheduleInput& in, AxisSet axes) {
  const auto add = [&](shard::ModuleUse& module) {
    module.values = {{"part", false}, {"full", true}, {"sum", false}, {"scattered", false}, {"gate", true}};
    module.stages = {{{}, {0, 4}}, {{1}, {2}}, {{3, 4}, {}}};
    module.exchanges = {{{0, 0, 1, ExchangeKind::all_gather, ExchangeKind::reduce_scatter}, in.mesh.used(axes)},
                        {{1, 2, 3, ExchangeKind::reduce_scatter, ExchangeKind::all_gather}, in.mesh.used(axes)}};
  };
  for (shard::ModuleUse& module : in.modules)
    if (module.recomputable) add(module);
  for (shard::ReferenceModel& reference : in.references)
    for (std::size_t m = 1; m + 1 < reference.modules.size(); ++m) add(reference.modules[m]);
}

/// Embedding and head of which the ranks have parts of the vocabulary: the lookups are summed, and the head's
/// statistics of tokens are exchanged before its last stage.
inline void exchange_vocabulary(shard::ScheduleInput& in, AxisSet axes) {
  constexpr auto gather = ExchangeKind::all_gather, scatter = ExchangeKind::reduce_scatter;
  shard::ModuleUse &embed = in.modules.front(), &head = in.modules.back();
  embed.values = {{"partial rows", false}, {"rows", false}};
  embed.stages = {{{}, {0}}, {{1}, {}}};
  embed.exchanges = {{{0, 0, 1, scatter, gather}, in.mesh.used(axes)}};
  head.values = {{"normed", false}, {"all normed", true}, {"part statistics", false}, {"statistics", true}};
  head.stages = {{{}, {0}}, {{1}, {2}}, {{3}, {}}};
  head.exchanges = {{{0, 0, 1, gather, scatter}, in.mesh.used(axes)},
                    {{1, 2, 3, ExchangeKind::all_to_all, gather}, in.mesh.used(axes)}};
  head.forward_units = head.backward_units;
}

/// The head sums the routing statistics of a mixture of experts over the ranks that share rows: what has no gradient is
/// exchanged in forward alone. Behind its own stages, if it has any.
inline void exchange_router(shard::ScheduleInput& in, AxisSet axes) {
  shard::ModuleUse& head = in.modules.back();
  if (head.stages.empty()) head.stages.resize(2);
  const int own = static_cast<int>(head.values.size());
  head.values.insert(head.values.end(), {{"router", false, true}, {"all routers", false, true}});
  head.stages[0].writes.push_back(own);
  head.stages[1].reads.push_back(own + 1);
  head.exchanges.push_back({{0, own, own + 1, ExchangeKind::all_gather, ExchangeKind::copy}, in.mesh.used(axes)});
}

/// Blocks of five stages with four exchanges, as a layer has them under tensor parallelism.
inline void exchange_tokens(shard::ScheduleInput& in, AxisSet axes) {
  constexpr auto gather = ExchangeKind::all_gather, scatter = ExchangeKind::reduce_scatter;
  for (shard::ModuleUse& module : in.modules) {
    if (!module.recomputable) continue;
    module.stages = {{{}, {0}}};
    for (int after = 0; after < 4; ++after) {
      const int from = 2 * after, to = from + 1;
      const bool gathers = after % 2 == 0;
      module.values.insert(module.values.end(), {{gathers ? "normed" : "partial sum", false}, {"", gathers}});
      module.stages.push_back({{to}, after < 3 ? std::vector{to + 1} : std::vector<int>()});
      module.exchanges.push_back(
          {{after, from, to, gathers ? gather : scatter, gathers ? scatter : gather}, in.mesh.used(axes)});
    }
    for (std::size_t v = 1; v < module.values.size(); v += 2) module.values[v].name = "v" + std::to_string(v);
  }
}

/// Blocks of three stages as attention has them where ranks share rows: heads are exchanged for tokens, and back.
inline void exchange_heads(shard::ScheduleInput& in, AxisSet axes) {
  constexpr auto all_to_all = ExchangeKind::all_to_all;
  for (shard::ModuleUse& module : in.modules) {
    if (!module.recomputable) continue;
    module.values = {{"heads", false}, {"row heads", true}, {"row output", false}, {"output", true}};
    module.stages = {{{}, {0}}, {{1}, {2}}, {{3}, {}}};
    module.exchanges = {{{0, 0, 1, all_to_all, all_to_all}, in.mesh.used(axes)},
                        {{1, 2, 3, all_to_all, all_to_all}, in.mesh.used(axes)}};
  }
}

/// Blocks of five stages: what the ranks along `tokens` have gathered is exchanged over `heads`, and back, before it is
/// scattered again.
inline void exchange_tokens_and_heads(shard::ScheduleInput& in, AxisSet tokens, AxisSet heads) {
  constexpr auto gather = ExchangeKind::all_gather, scatter = ExchangeKind::reduce_scatter,
                 all_to_all = ExchangeKind::all_to_all;
  for (shard::ModuleUse& module : in.modules) {
    if (!module.recomputable) continue;
    module.values = {{"normed", false}, {"all normed", true}, {"partial sum", false}, {"sum", false},
                     {"heads", false},  {"row heads", true},  {"row output", false},  {"output", true}};
    module.stages = {{{}, {0}}, {{1}, {4}}, {{5}, {6}}, {{7}, {2}}, {{3}, {}}};
    module.exchanges = {{{0, 0, 1, gather, scatter}, in.mesh.used(tokens)},
                        {{1, 4, 5, all_to_all, all_to_all}, in.mesh.used(heads)},
                        {{2, 6, 7, all_to_all, all_to_all}, in.mesh.used(heads)},
                        {{3, 2, 3, scatter, gather}, in.mesh.used(tokens)}};
  }
}

/// Offloads the activations of the blocks. With full checkpointing they save nothing.
inline void offload_activations(shard::ScheduleInput& in) {
  in.policy.activations = shard::Tier::host;
  for (shard::ModuleUse& module : in.modules) {
    module.offloads = module.recomputable;
    module.saves = module.recomputable && in.policy.recompute != shard::Recompute::full;
    module.saves_again = module.recomputable && recomputes(in.policy.recompute);
  }
}

/// The same for evaluation: the head reads its units in forward.
inline shard::ScheduleInput forward_input(const ModelShape& shape, const shard::Strategy& strategy) {
  shard::ScheduleInput in = schedule_input(shape, strategy, 1);
  in.modules.back().forward_units = in.modules.back().backward_units;
  return in;
}

}  // namespace tessera::test
