// SPDX-License-Identifier: Apache-2.0
// Runs that send int8 on a device, against host ranks as threads: losses, norms, weights and residuals, memory and
// bytes as planned.
#include <algorithm>
#include <cstdio>

#include "kernels/threads.hpp"
#include "runtime/base/hash.hpp"
#include "tests/train/device/device_runs.hpp"

namespace tessera::test {
namespace {

using Gathers = shard::Compression::Gathers;

/// Bytes that a group has sent so far.
std::uint64_t sent_by(const train::Trainer& trainer, std::size_t group) {
  const TrafficCount sent = trainer.traffic(trainer.plan().groups.all[group]);
  return sent.within_node + sent.across_nodes;
}

/// What differs between a step's traffic and the plan's; "": nothing. before: by group, bytes sent before the step.
std::string unplanned_traffic(const train::Trainer& trainer, const std::vector<std::uint64_t>& before) {
  const plan::RunPlan& plan = trainer.plan();
  for (std::size_t g = 0; g < plan.groups.all.size(); ++g) {
    const std::uint64_t sent = sent_by(trainer, g) - before[g],
                        planned = plan.costs.traffic[g].within_node + plan.costs.traffic[g].across_nodes;
    if (sent != planned) return strfmt("group %zu sends %lu bytes, planned are %lu", g, sent, planned);
  }
  return "";
}

Said int8_run(World& world, const models::Model& model, const Variant& v) {
  kernels::set_threads(1);
  const RandomTokens tokens(400, 37);
  train::Trainer trainer(world, options_of(model, v, steps_of_run));
  trainer.initialize();
  const io::Sampler sampler(io::count_samples(tokens, v.tokens).samples, true, 11);
  const auto refuse = [&](const std::string& what) {
    if (!what.empty()) world.abort(Error(ExitCode::internal, what, v.str()));
  };
  Said said;
  if (world.device() != host_device) trainer.warm_up({&tokens, &sampler, v.global_batch});  // leaves no residuals
  std::vector<std::uint64_t> before;
  for (std::size_t g = 0; g < trainer.plan().groups.all.size(); ++g) before.push_back(sent_by(trainer, g));
  for (int s = 0; s < steps_of_run; ++s) {
    const auto report = trainer.step(tokens, sampler, s * v.global_batch, v.global_batch);
    said.numbers.insert(said.numbers.end(), {report.loss, report.grad_norm});
    if (s == 0) refuse(unplanned_traffic(trainer, before));
  }
  refuse(plan::compare_memory(trainer.plan(), trainer.measured_memory()));
  said.hash = trainer.state_hash();
  if (!v.compression.error_feedback || !v.compression.gradients) return said;
  trainer.collect_residuals();
  bool any = false;
  for (const io::StateView& view : trainer.state().shards) {
    const std::vector<float> residual = as_floats(view.data.back());
    any = any || std::ranges::any_of(residual, [](float x) { return x < 0 || x > 0; });
    said.hash = hash64({reinterpret_cast<const char*>(residual.data()), residual.size() * sizeof(float)}, said.hash);
  }
  if (!any) refuse("every residual is 0");
  return said;
}

/// Of ranks that copy what they gather, as a device does.
Said int8_on_host(int size, int rank, const models::Model& model, const Variant& v) {
  Said said;
  run_local(
      size,
      [&](World& world) {
        const Said mine = int8_run(world, model, v);
        if (world.rank() == rank) said = mine;
      },
      true);
  return said;
}

std::vector<Variant> compressed_variants(int world) {
  std::vector<Variant> all;
  for (const char* strategy : {"0", "1", "3", "HYBRID_SHARD"})
    for (const DType dtype : {DType::f32, DType::bf16}) {
      const bool hybrid = strategy[0] == 'H', sharded = hybrid || strategy[0] == '3';
      if (hybrid && world != 4) continue;
      for (const bool feedback : {true, false})
        all.push_back({.world = world,
                       .strategy = strategy,
                       .group = hybrid ? 2 : 0,
                       .global_batch = 2 * world - 1,
                       .dtype = dtype,
                       .compression = {.gradients = true,
                                       .gathers = sharded ? Gathers::all : Gathers::none,
                                       .everywhere = true,
                                       .error_feedback = feedback}});
    }
  return all;
}

}  // namespace

int compressed(World& world, Truth truth) {
  int wrong = 0;
  for (const Variant& v : compressed_variants(world.size())) {
    const models::Model model = models::make(config_json({.layers = 3}), "test", v.dtype);
    const Said device = int8_run(world, model, v), host = int8_on_host(world.size(), world.rank(), model, v);
    Variant plain = v;
    plain.compression = {};
    const bool rounded = one_rank(world, model, plain, {}).numbers != device.numbers;
    if (agree(device, host, truth, v.dtype) && rounded) continue;
    std::printf("rank %d differs%s, %s\n  device %s\n  host   %s\n", world.rank(),
                rounded ? "" : " (nothing is rounded)", v.str().c_str(), device.str().c_str(), host.str().c_str());
    ++wrong;
  }
  return wrong;
}

}  // namespace tessera::test
