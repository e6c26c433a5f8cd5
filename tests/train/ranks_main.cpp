// SPDX-License-Identifier: Apache-2.0
// Run by mpirun: trains on MPI ranks and compares with the same run on ranks as threads, bit for bit; compares bytes
// sent and memory with the plan.
//   train_ranks TRANSPORT RANKS_PER_NODE      TRANSPORT: mpi | node;  RANKS_PER_NODE 0: as the hosts are
// Exits 0 if all is equal, else prints what differs.

#include <cstdio>
#include <cstdlib>
#include <string>

#include "kernels/threads.hpp"
#include "runtime/base/log.hpp"
#include "tests/train/run.hpp"

namespace tessera::test {
namespace {

/// A run on this rank, as text: losses and norms in full, and a hash of its shards.
std::string one_rank(World& world, const models::Model& model, const RandomTokens& tokens, const Variant& v,
                     bool check_traffic) {
  train::Trainer trainer(world, options_of(model, v, 3));
  trainer.initialize();
  const io::Sampler sampler(40, true, 11);
  // Frozen units may have been gathered, which is not part of a step.
  std::vector<TrafficCount> loaded;  // by group
  for (const AxisSet axes : trainer.plan().groups.all) loaded.push_back(trainer.traffic(axes));
  std::string text;
  for (int s = 0; s < 3; ++s) {
    const auto report = trainer.step(tokens, sampler, s * v.global_batch, v.global_batch);
    text += strfmt("%a %a ", report.loss, report.grad_norm);
  }
  if (check_traffic)
    for (std::size_t g = 0; g < loaded.size(); ++g) {
      const AxisSet axes = trainer.plan().groups.all[g];
      TrafficCount counted = trainer.traffic(axes);
      counted.within_node -= loaded[g].within_node;
      counted.across_nodes -= loaded[g].across_nodes;
      const TrafficCount& planned = trainer.plan().costs.traffic[g];
      if (counted.within_node != 3 * planned.within_node || counted.across_nodes != 3 * planned.across_nodes)
        world.abort(Error(ExitCode::internal,
                          strfmt("group along %s: counted %llu + %llu bytes, planned %llu + %llu", axes.str().c_str(),
                                 static_cast<unsigned long long>(counted.within_node),
                                 static_cast<unsigned long long>(counted.across_nodes),
                                 static_cast<unsigned long long>(3 * planned.within_node),
                                 static_cast<unsigned long long>(3 * planned.across_nodes)),
                          v.str()));
    }
  if (const std::string differs = plan::compare_memory(trainer.plan(), trainer.measured_memory()); !differs.empty())
    world.abort(Error(ExitCode::internal, differs, v.str()));
  const std::string broken = trainer.arena().broken_canary();
  if (!broken.empty()) world.abort(Error(ExitCode::internal, "canary of slot " + broken + " is broken", v.str()));
  text += strfmt("%016llx", static_cast<unsigned long long>(trainer.state_hash()));
  const auto eval = trainer.evaluate(tokens, 7);
  return text + strfmt(" %a", eval.loss);
}

struct Case {
  Variant variant;
  const FrozenSet* frozen = nullptr;
};

std::vector<Case> cases(int world) {
  std::vector<Case> all;
  for (const char* strategy : {"0", "1", "2", "3"})
    for (const auto reduce : {shard::Reduce::each, shard::Reduce::last})
      all.push_back({{.world = world, .strategy = strategy, .global_batch = 2 * world - 1, .reduce = reduce}});
  for (int group = 2; group < world; ++group)
    if (world % group == 0)
      for (const char* strategy : {"HYBRID_SHARD", "HYBRID_SHARD_ZERO2"})
        for (const auto reduce : {shard::Reduce::each, shard::Reduce::shard_each})
          all.push_back({{.world = world,
                          .strategy = strategy,
                          .group = group,
                          .global_batch = 3 * world - 1,
                          .reduce = reduce}});
  all.push_back({{.world = world,
                  .strategy = "3",
                  .unit_strategies = {{"embed", "NO_SHARD"}, {"head", "SHARD_GRAD_OP"}},
                  .global_batch = 2 * world - 1}});
  if (world % 2 == 0)
    all.push_back({{.world = world,
                    .strategy = "HYBRID_SHARD",
                    .group = 2,
                    .unit_strategies = {{"embed", "0"}, {"h.0", "3"}, {"head", "HYBRID_SHARD_ZERO2"}},
                    .global_batch = 2 * world - 1,
                    .reduce = shard::Reduce::shard_each}});
  for (const shard::WrapPolicy& wrap :
       {shard::WrapPolicy{.blocks_per_unit = 2}, {.kind = shard::WrapPolicy::Kind::model}})
    for (const char* strategy : {"0", "2", "3"})
      all.push_back({{.world = world, .strategy = strategy, .global_batch = 2 * world - 1, .wrap = wrap}});
  for (const char* strategy : {"0", "2", "3"})
    for (const DType reduce_dtype : {DType::f32, DType::bf16})
      all.push_back({{.world = world,
                      .strategy = strategy,
                      .global_batch = 2 * world - 1,
                      .dtype = DType::bf16,
                      .reduce_dtype = reduce_dtype}});
  for (const FrozenSet& set : frozen_sets)
    for (const char* strategy : {"2", "3"})
      for (const DType dtype : {DType::f32, DType::bf16})
        all.push_back({{.world = world, .strategy = strategy, .global_batch = 2 * world - 1, .dtype = dtype}, &set});
  if (world % 2 == 0 && world > 2)
    all.push_back(
        {{.world = world, .strategy = "HYBRID_SHARD", .group = 2, .global_batch = 2 * world - 1}, &frozen_sets[1]});
  return all;
}

int compare(World& world, const RandomTokens& tokens) {
  int wrong = 0;
  for (const auto& [v, frozen] : cases(world.size())) {
    models::Model model = models::make(config_json({}), "test", v.dtype);
    if (frozen != nullptr) freeze(model, frozen->frozen);
    const auto said = world.gather(one_rank(world, model, tokens, v, true));
    if (world.rank() == 0) {
      std::vector<std::string> expected(static_cast<std::size_t>(world.size()));
      run_local(world.size(), [&](World& local) {
        expected[static_cast<std::size_t>(local.rank())] = one_rank(local, model, tokens, v, false);
      });
      for (std::size_t r = 0; r < said.size(); ++r)
        if (said[r] != expected[r]) {
          std::printf("rank %zu differs, %s%s%s\n  mpi   %s\n  local %s\n", r, v.str().c_str(),
                      frozen != nullptr ? ", frozen: " : "", frozen != nullptr ? frozen->name : "", said[r].c_str(),
                      expected[r].c_str());
          ++wrong;
        }
    }
    world.barrier();
  }
  if (world.rank() == 0)
    std::printf("%zu variants on %d ranks, transport %s: %d differences\n", cases(world.size()).size(), world.size(),
                name_of(world.topology().transport), wrong);
  return static_cast<int>(world.max(wrong));
}

}  // namespace
}  // namespace tessera::test

int main(int argc, char** argv) {
  using namespace tessera;
  if (argc != 3) return 2;
  const std::string transport = argv[1];
  kernels::set_threads(1);
  WorldOptions options;
  options.comm = transport == "node" ? WorldOptions::Comm::node : WorldOptions::Comm::mpi;
  options.ranks_per_node = std::atoi(argv[2]);
  options.comm_timeout_s = 60;
  try {
    const auto world = bootstrap(options);
    const test::RandomTokens tokens(400, 37);
    return test::compare(*world, tokens) == 0 ? 0 : 1;
  } catch (const Error& error) {
    log::error_here(error.line());
    return static_cast<int>(error.code());
  }
}
