// SPDX-License-Identifier: Apache-2.0
#include "tests/shard/mutation_subjects.hpp"

#include "runtime/base/error.hpp"
#include "runtime/shard/tensor.hpp"
#include "tests/shard/cases.hpp"

namespace tessera::test {

using namespace shard;

namespace {

void add_train(std::vector<Subject>& out, const std::string& name, const ScheduleInput& in) {
  out.push_back({name, build_train(in), in.mesh, build_load(in)});
}

/// Replicated over all data axes.
UnitPolicy no_shard(UnitPolicy policy) {
  policy.shard_axes = {};
  policy.replicate_axes = Axis::replicate | Axis::shard;
  return policy;
}

/// Offloaded states: of every strategy, on the host beside a device and on disk. The quick test has a seventh of
/// them.
void add_placed(std::vector<Subject>& out, const char* word, bool all_of_them) {
  constexpr Tier device = Tier::device, host = Tier::host, disk = Tier::disk;
  struct Where {
    const char* name;
    StatePlacement placement;
    bool on_host;
  };
  const Where all[] = {{"optimizer on the host", {device, host, host}, true},
                       {"all on the host", {host, host, host}, true},
                       {"optimizer on disk", {device, device, disk}, false},
                       {"all on disk", {disk, disk, disk}, false},
                       {"states on disk beside a device", {host, host, disk}, true},
                       {"all on disk beside a device", {disk, disk, disk}, true},
                       {"staged on the device", {device, device, host}, false}};
  std::size_t count = out.size();
  for (const Where& where : all)
    for (const int num_micro : {1, 2, 3})
      for (int variant = 0; variant < 10; ++variant) {
        if (!all_of_them && count++ % 7 != 0) continue;
        ModelShape shape{.num_blocks = 3};
        if (variant == 1) shape = {.num_blocks = 2, .adapters = true, .frozen_embed = true, .frozen_blocks = 2};
        if (variant == 2) shape.embed_reads_late = true;
        ScheduleInput in = schedule_input(shape, make_strategy(word, 4, 0, 2), num_micro);
        in.policy.placement = where.placement;
        in.updates_on_host = where.on_host;
        if (variant == 2 || variant == 3) in.policy.updates_before_norm = true;
        if (variant == 4) in.policy.reproducible = true;
        if (variant == 5) in.policy.reduce = Reduce::last;
        if (variant == 6) in.policy.reduce = Reduce::shard_each;
        if (variant == 7) in.policy.staging_slots = 1, in.policy.recompute = Recompute::full;
        if (variant == 8) in.policy.param_dtype = in.policy.reduce_dtype = DType::bf16;
        if (variant == 9) in.policy.staging_slots = 3, in.params_in_place = where.placement.params == device;
        add_train(out, strfmt("%s, %s, A %d, variant %d", word, where.name, num_micro, variant), in);
      }
  ScheduleInput in = forward_input({.num_blocks = 3}, make_strategy(word, 4, 0, 2));
  in.policy.placement = {host, host, host};
  in.updates_on_host = true;
  out.push_back({std::string(word) + ", all on the host, evaluation", build_forward(in, true), in.mesh, {}});
}

/// Offloaded activations. The quick test has a third of them.
void add_activations(std::vector<Subject>& out, const char* word, bool all_of_them) {
  std::size_t count = out.size();
  for (const int num_micro : {1, 2, 3})
    for (int variant = 0; variant < 10; ++variant) {
      if (!all_of_them && count++ % 3 != 0) continue;
      ModelShape shape{.num_blocks = 5};
      if (variant == 2) shape = {.num_blocks = 4, .adapters = true, .frozen_embed = true, .frozen_blocks = 2};
      if (variant == 3) shape = {.num_blocks = 5, .tied = false, .frozen_embed = true, .frozen_blocks = 2};
      if (variant == 4) shape = {.num_blocks = 4, .adapters = true, .reference = ModelShape::Reference::base};
      ScheduleInput in = schedule_input(shape, make_strategy(word, 4, 0, 2), num_micro);
      in.policy.recompute = variant % 3 == 0   ? Recompute::none
                            : variant % 3 == 1 ? Recompute::full
                                               : Recompute::selective;
      if (variant == 5) in.policy.staging_slots = 1;
      if (variant == 6) in.policy.staging_slots = 3;
      if (variant == 7) in.policy.staging_slots = 1;
      if (variant == 8) in.policy.placement = {Tier::device, Tier::host, Tier::host}, in.updates_on_host = true;
      if (variant == 9) in.policy.placement = {Tier::disk, Tier::disk, Tier::disk};
      offload_activations(in);
      add_train(out, strfmt("%s, activations on the host, A %d, variant %d", word, num_micro, variant), in);
    }
}

/// Exchanges of activations, over the shard axis, the replicate axis and both. The quick test has a third of them.
void add_exchanges(std::vector<Subject>& out, const char* word, bool all_of_them) {
  std::size_t count = out.size();
  for (const int num_micro : {1, 2})
    for (int variant = 0; variant < 8; ++variant) {
      if (!all_of_them && count++ % 3 != 0) continue;
      ModelShape shape{.num_blocks = 2};
      if (variant == 2) shape = {.num_blocks = 3, .frozen_embed = true, .frozen_blocks = 1};
      if (variant == 3) shape = {.num_blocks = 2, .reference = ModelShape::Reference::base};
      if (variant == 7) shape.blocks_per_unit = 2;
      ScheduleInput in = schedule_input(shape, make_strategy(word, 4, 0, 2), num_micro);
      if (variant == 1 || variant == 6) in.policy.recompute = Recompute::full;
      if (variant == 4) in.policy.recompute = Recompute::selective;
      if (variant == 5) in.params_in_place = true;
      save_activations(in);
      if (variant == 6) offload_activations(in);
      const AxisSet axes = variant % 3 == 0   ? AxisSet(Axis::shard)
                           : variant % 3 == 1 ? AxisSet(Axis::replicate)
                                              : Axis::replicate | Axis::shard;
      exchange_activations(in, axes);
      add_train(out, strfmt("%s, exchanges, A %d, variant %d", word, num_micro, variant), in);
    }
  // Attention of rows that the ranks of the shard axis share.
  for (const Recompute recompute : {Recompute::none, Recompute::full, Recompute::selective}) {
    if (!all_of_them && count++ % 3 != 0) continue;
    ScheduleInput in = schedule_input({.num_blocks = 2}, make_strategy(word, 4, 0, 2), 2);
    in.policy.recompute = recompute;
    save_activations(in);
    exchange_heads(in, Axis::shard);
    add_train(out, strfmt("%s, heads for tokens, %s", word, name_of(recompute)), in);
  }
  // The head sums routing statistics over these ranks, before the first backward.
  for (const Recompute recompute : {Recompute::none, Recompute::full, Recompute::selective}) {
    if (!all_of_them && count++ % 3 != 0) continue;
    ScheduleInput in = schedule_input({.num_blocks = 2}, make_strategy(word, 4, 0, 2), 2);
    in.policy.recompute = recompute;
    save_activations(in);
    exchange_heads(in, Axis::shard);
    exchange_router(in, Axis::shard);
    add_train(out, strfmt("%s, heads for tokens, experts, %s", word, name_of(recompute)), in);
  }
  // Layers whose matrices the ranks of the tensor axis share, with their parts of embedding and head.
  for (const Recompute recompute : {Recompute::none, Recompute::full, Recompute::selective}) {
    if (!all_of_them && count++ % 3 != 0) continue;
    ScheduleInput in =
        schedule_input({.num_blocks = 2}, with_tensor(make_strategy(word, 8, word[0] == 'H' ? 4 : 0, 4), 2), 2);
    in.policy.recompute = recompute;
    save_activations(in);
    exchange_tokens(in, Axis::tensor);
    exchange_vocabulary(in, Axis::tensor);
    add_train(out, strfmt("%s, parts of matrices, %s", word, name_of(recompute)), in);
  }
  // The same where ranks share rows too.
  for (const Recompute recompute : {Recompute::none, Recompute::full}) {
    if (!all_of_them && count++ % 3 != 0) continue;
    ScheduleInput in =
        schedule_input({.num_blocks = 2}, with_tensor(make_strategy(word, 8, word[0] == 'H' ? 4 : 0, 4), 2), 1);
    in.policy.recompute = recompute;
    for (UnitInput& unit : in.units)
      unit.policy = unit.name.starts_with("h.") ? UnitPolicy(in.policy) : replicated(in.policy, in.mesh);
    save_activations(in);
    exchange_tokens_and_heads(in, Axis::tensor, Axis::shard);
    if (recompute == Recompute::full) exchange_vocabulary(in, Axis::tensor), exchange_router(in, Axis::shard);
    add_train(out, strfmt("%s, parts of matrices and rows, %s", word, name_of(recompute)), in);
  }
  // Replicas of groups of the tensor ranks alone: units of parts are all-reduced over the axes of what follows a
  // reduce-scatter of the others.
  for (int variant = 0; variant < 6 && word[0] == 'H'; ++variant) {
    if (!all_of_them && count++ % 3 != 0) continue;
    ScheduleInput in = schedule_input({.num_blocks = 2, .tied = variant != 4},
                                      with_tensor(make_strategy(word, 8, 2, 2), 2), 1 + variant % 3);
    if (variant == 1) in.policy.reduce = Reduce::shard_each;
    if (variant == 2) in.policy.reduce = Reduce::last;
    if (variant == 3) in.policy.param_dtype = in.policy.reduce_dtype = DType::bf16;
    if (variant == 4) in.policy.recompute = Recompute::full;
    if (variant == 5) in.policy.placement = {Tier::device, Tier::host, Tier::host}, in.updates_on_host = true;
    for (UnitInput& unit : in.units)
      unit.policy = unit.name.starts_with("h.") ? UnitPolicy(in.policy) : replicated(in.policy, in.mesh);
    save_activations(in);
    exchange_tokens(in, Axis::tensor);
    add_train(out, strfmt("%s, replicas of parts of matrices, variant %d", word, variant), in);
  }
  ScheduleInput in = forward_input({.num_blocks = 2}, make_strategy(word, 4, 0, 2));
  exchange_activations(in, Axis::shard);
  out.push_back({std::string(word) + ", exchanges, evaluation", build_forward(in, true), in.mesh, {}});
}

}  // namespace

std::vector<Subject> subjects(bool all) {
  std::vector<Subject> out;
  for (const char* word : {"0", "1", "2", "3", "HYBRID_SHARD", "HYBRID_SHARD_ZERO2"}) {
    const Strategy strategy = make_strategy(word, 4, 0, 2);
    for (const int num_micro : {1, 2, 3}) {
      for (const int prefetch : {0, 1, 2}) {
        if (prefetch != 1 && !strategy.policy.shard_params) continue;
        for (int variant = 0; variant <= 24; ++variant) {
          ModelShape shape{.num_blocks = 3};
          ScheduleInput in;
          if (variant == 1) shape.tied = false;
          if (variant == 2) shape = {.num_blocks = 2, .adapters = true};
          if (variant == 3) shape = {.num_blocks = 2, .frozen_embed = true};
          if (variant == 13 || variant == 14) shape = {.num_blocks = 3, .frozen_embed = true, .frozen_blocks = 2};
          if (variant == 15 || variant == 16)
            shape = {.num_blocks = 2, .adapters = true, .frozen_embed = true, .frozen_blocks = 2};
          if (variant == 9) shape.embed_reads_late = true;
          if (variant >= 22) {
            using Reference = ModelShape::Reference;
            shape = {.num_blocks = 2, .reference = variant == 22 ? Reference::base : Reference::own};
            if (variant != 24) shape.adapters = shape.frozen_embed = true, shape.frozen_blocks = 2;
          }
          if (variant >= 17 && variant <= 19) shape = {.num_blocks = 4, .blocks_per_unit = 3, .tied = variant != 18};
          in = schedule_input(shape, strategy, num_micro);
          in.policy.forward_prefetch = in.policy.backward_prefetch = prefetch;
          if (variant == 4 || variant == 18) in.policy.recompute = Recompute::full;
          if (variant == 5 || variant == 19) in.policy.reduce = Reduce::last;
          if (variant == 6 || variant == 9) in.params_in_place = true;
          if (variant == 7) in.policy.reproducible = true;
          if (variant == 8 || variant == 12) in.policy.reshard_after_forward = false;
          if (variant >= 10 && variant <= 14) in.policy.param_dtype = DType::bf16;  // separate fp32 masters
          if (variant >= 11 && variant <= 12) in.policy.reduce_dtype = DType::bf16;
          if (variant == 11 || variant == 14 || variant == 16 || variant == 19) in.params_in_place = true;
          if (variant == 12) in.policy.reduce = Reduce::last;
          if (variant == 23) in.params_in_place = true;
          if (variant == 24) in.policy.recompute = Recompute::full;
          if (variant == 20 || variant == 21) in.policy.reduce = Reduce::shard_each;
          if (variant == 21) in.units[0].policy = no_shard(in.policy);
          if (variant % 2 == 0) save_activations(in);
          add_train(out, strfmt("%s, A %d, prefetch %d, variant %d", word, num_micro, prefetch, variant), in);
        }
      }
    }
    add_placed(out, word, all);
    add_activations(out, word, all);
    add_exchanges(out, word, all);
    for (const bool with_loss : {true, false}) {
      const ScheduleInput in = forward_input({.num_blocks = 3}, strategy);
      out.push_back({std::string(word) + (with_loss ? ", evaluation" : ", generation"),
                     build_forward(in, with_loss),
                     in.mesh,
                     {}});
      ScheduleInput inference = in;
      for (UnitInput& unit : inference.units) unit.trainable = false;
      out.push_back(
          {std::string(word) + ", inference", build_forward(inference, with_loss), in.mesh, build_load(inference)});
    }
  }
  add_train(out, "one rank", schedule_input({}, make_strategy("3", 1, 0, 1), 2));
  add_train(out, "no block", schedule_input({.num_blocks = 0}, make_strategy("3", 2, 0, 1), 2));
  return out;
}

}  // namespace tessera::test
