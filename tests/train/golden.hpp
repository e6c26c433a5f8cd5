// SPDX-License-Identifier: Apache-2.0
#pragma once
// Ten optimizer steps of PyTorch (tests/models/golden), compared with a run of any World, on the host or a device.

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/train/run.hpp"

namespace tessera::test {

struct Golden {
  std::string directory;
  nlohmann::json expected;
  models::Model model;
  std::unique_ptr<io::TokenStream> tokens;
  std::string adapter;  // a directory of PEFT's, whose adapter is trained; "": none
  std::string results;  // the directory of its gradients and final weights
};
/// `file`: golden.json, or a run of another optimizer (sgd.json, param_groups.json, adamw_8bit.json), or with loss
/// weights (weighted.json).
[[nodiscard]] Golden load_golden(const std::string& shape, const std::string& file = "golden.json");

/// A run of a directory's frozen.json, whose parameters are frozen in the model.
struct FrozenGolden {
  const char *shape, *run;
};
inline constexpr FrozenGolden frozen_goldens[] = {
    {"tiny", "embedding"},      {"tiny", "block 1"},      {"text", "block 1"},   {"llama", "embedding"},
    {"llama", "block 1"},       {"qwen2", "embedding"},   {"qwen2", "block 1"},  {"qwen3-untied", "embedding"},
    {"qwen3-moe", "embedding"}, {"qwen3-moe", "block 1"}, {"mixtral", "block 1"}};
[[nodiscard]] Golden load_golden(const FrozenGolden& frozen);

/// A folder of the directory: an adapter, with PEFT's run of it.
[[nodiscard]] Golden load_lora_golden(const std::string& shape, const std::string& folder = "lora");
/// The directory's dpo/: PEFT's run of the same adapter with the loss of DPO, which the model is not given yet.
[[nodiscard]] Golden load_dpo_golden(const std::string& shape);

/// The golden run at a ZeRO stage, with micro-batch sizes that leave short and empty micro-batches.
[[nodiscard]] Variant golden_stage(const Golden& golden, int world, const char* stage);
/// The golden run of a family at ZeRO-3, with its micro-batches: load-balancing losses are per micro-batch.
[[nodiscard]] Variant golden_family(const Golden& golden, int world);

struct GoldenRun {
  std::vector<std::string>
      wrong;  // a line for each figure beyond its tolerance; those of whole gradients and weights on rank 0 alone
  std::vector<double> curve;  // loss and norm of each step
};
/// Collective. Loss and norm of each step within 2e-5 of PyTorch's (8-bit states: 2e-4), gradients of the first step
/// within 5e-5 and final weights within 1e-4, by parameter. Frozen parameters keep their bits. Of an adapter, every
/// element of gradients and weights within 5e-5 of the tensor's norm.
[[nodiscard]] GoldenRun run_golden(World& world, const Golden& golden, const Variant& variant);

}  // namespace tessera::test
