// SPDX-License-Identifier: Apache-2.0
// PyTorch's steps on a device: the same golden files, the same tolerances as on the host.
#include <cstdio>

#include "tests/train/device/device_runs.hpp"
#include "tests/train/golden.hpp"

namespace tessera::test {

namespace {

/// How many numbers differ from PyTorch's.
int check(World& world, const Golden& golden, const Variant& v, std::vector<double>& curve) {
  const GoldenRun run = run_golden(world, golden, v);
  for (const std::string& wrong : run.wrong) std::printf("rank %d: %s\n", world.rank(), wrong.c_str());
  curve = run.curve;
  const bool complete = curve.size() == 2 * golden.expected["steps"].get<std::size_t>();
  if (!complete) std::printf("rank %d: %zu figures\n", world.rank(), curve.size());
  return static_cast<int>(run.wrong.size()) + (complete ? 0 : 1);
}

/// Whether the curve differs from that of host ranks.
int compare_with_host(World& world, const Golden& golden, const Variant& v, const std::vector<double>& curve) {
  std::vector<double> of_host;
  run_local(world.size(), [&](World& local) {
    const GoldenRun again = run_golden(local, golden, v);
    if (local.rank() == world.rank()) of_host = again.curve;
  });
  if (curve == of_host) return 0;
  std::printf("rank %d: not the bits of the host, %s\n", world.rank(), v.str().c_str());
  return 1;
}

}  // namespace

int golden_curves(World& world, Truth truth) {
  int wrong = 0;
  for (const char* shape : {"tiny", "odd", "text"}) {
    const Golden golden = load_golden(shape);
    std::vector<double> first, curve;
    for (const char* stage : {"0", "1", "2", "3"}) {
      wrong += check(world, golden, golden_stage(golden, world.size(), stage), curve);
      if (first.empty()) first = curve;
      if (curve != first) std::printf("rank %d: %s, ZeRO-%s is not as ZeRO-0\n", world.rank(), shape, stage), ++wrong;
    }
    if (truth == Truth::exact)
      wrong += compare_with_host(world, golden, golden_stage(golden, world.size(), "3"), curve);
  }
  for (const char* family :
       {"llama", "llama3-rope", "qwen2", "qwen3", "qwen3-untied", "qwen3-moe", "qwen3-moe-fused", "mixtral", "mistral",
        "phi3-long", "olmo2", "smollm3", "granite", "gemma2", "gemma3", "gpt-oss", "llama4"}) {
    const Golden golden = load_golden(family);
    std::vector<double> curve;
    wrong += check(world, golden, golden_family(golden, world.size()), curve);
    if (truth == Truth::exact && golden.model.router.layers > 0)
      wrong += compare_with_host(world, golden, golden_family(golden, world.size()), curve);
  }
  for (const char* shape : {"tiny", "qwen2"}) {
    const Golden golden = load_golden(shape, "weighted.json");
    std::vector<double> curve;
    wrong += check(world, golden, golden_stage(golden, world.size(), "3"), curve);
    if (truth == Truth::exact)
      wrong += compare_with_host(world, golden, golden_stage(golden, world.size(), "3"), curve);
  }
  for (const FrozenGolden& frozen : frozen_goldens) {
    const Golden golden = load_golden(frozen);
    std::vector<double> curve;
    wrong += check(world, golden, golden_family(golden, world.size()), curve);
    if (truth == Truth::exact) wrong += compare_with_host(world, golden, golden_family(golden, world.size()), curve);
  }
  return wrong;
}

}  // namespace tessera::test
