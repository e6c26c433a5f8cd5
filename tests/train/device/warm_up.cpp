// SPDX-License-Identifier: Apache-2.0
// A warm-up step has every kind of kernel that step 1 has, so that none is loaded there, and changes no bit.
#include <dlfcn.h>

#include <cstdio>

#include "tests/simulated_device/kernel_kinds.hpp"
#include "tests/train/device/device_runs.hpp"

namespace tessera::test {
namespace {

const simulated::KernelKinds& kernel_kinds() {
  void* const found = ::dlsym(RTLD_DEFAULT, simulated::kernel_kinds_name);
  TESSERA_ASSERT(found != nullptr, "this is not the simulated device");
  return *reinterpret_cast<decltype(&simulated::tessera_simulated_kernel_kinds)>(found)();
}

/// Errors of one run with two warm-up steps, against one without.
int compare(World& world, const models::Model& model, const Variant& v) {
  const RandomTokens tokens(400, 37);
  const io::Sampler sampler(40, true, 11);
  std::string outcomes[2];
  bool keeps_state = true;
  std::size_t of_warm_up = 0, of_both = 0;
  for (const bool warms_up : {false, true}) {
    train::Trainer trainer(world, options_of(model, v, 2));
    trainer.initialize();
    const std::uint64_t before = trainer.state_hash();
    kernel_kinds().clear();
    for (int i = 0; warms_up && i < 2; ++i) trainer.warm_up({&tokens, &sampler, v.global_batch});
    of_warm_up = kernel_kinds().count();
    keeps_state = keeps_state && trainer.state_hash() == before;
    Said said;
    for (int s = 0; s < 2; ++s) {
      const auto report = trainer.step(tokens, sampler, s * v.global_batch, v.global_batch);
      said.numbers.insert(said.numbers.end(), {report.loss, report.grad_norm});
      if (s == 0) of_both = kernel_kinds().count();
    }
    said.hash = trainer.state_hash();
    outcomes[warms_up ? 1 : 0] = said.str();
  }
  if (keeps_state && of_warm_up == of_both && outcomes[0] == outcomes[1]) return 0;
  std::printf(
      "rank %d: a warm-up step has %zu kinds of kernels, and with step 1 %zu; keeps the state: %d, %s\n  without %s\n"
      "  with    %s\n",
      world.rank(), of_warm_up, of_both, keeps_state, v.str().c_str(), outcomes[0].c_str(), outcomes[1].c_str());
  return 1;
}

}  // namespace

int warm_up(World& world, Truth truth) {
  using train::OptimizerKind;
  if (truth != Truth::exact) return 0;
  int wrong = 0;
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
    const models::Model model = models::make(config_json({}), "test", dtype);
    for (const OptimizerKind kind : {OptimizerKind::adamw, OptimizerKind::adamw_8bit, OptimizerKind::sgd})
      for (const char* strategy : {"1", "3"}) {
        Variant v{.world = world.size(), .strategy = strategy, .global_batch = 2 * world.size(), .dtype = dtype};
        v.optimizer.kind = kind;
        v.optimizer.momentum = 0.9;
        wrong += compare(world, model, v);
      }
  }
  const models::Model model = models::make(config_json({}), "test", DType::bf16);
  for (const bool clips : {true, false}) {  // states on the host, which updates them
    Variant v{.world = world.size(), .strategy = "3", .global_batch = 2 * world.size(), .dtype = DType::bf16};
    v.placement = {shard::Tier::host, shard::Tier::host, shard::Tier::host};
    v.max_grad_norm = clips ? 1.0 : 0.0;
    v.updates_before_norm = !clips;
    wrong += compare(world, model, v);
  }
  return wrong;
}

}  // namespace tessera::test
