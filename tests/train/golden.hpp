#pragma once
// Ten AdamW steps of PyTorch (tests/models/golden) as a run of any World, on the host or a device: what of it is not as
// there.

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/train/run.hpp"

namespace tessera::test {

struct Golden {
  std::string directory;
  nlohmann::json expected;
  models::Model model;
  io::Dataset data;
};
[[nodiscard]] Golden load_golden(const std::string& shape);

/// The golden run at a stage, with micro-batches that leave short and empty ones, which differ with the number of
/// ranks.
[[nodiscard]] Variant golden_stage(const Golden& golden, int world, const char* stage);
/// The golden run of a family at stage 3, with its micro-batches: a balance loss is one of a micro-batch.
[[nodiscard]] Variant golden_family(const Golden& golden, int world);

struct GoldenRun {
  std::vector<std::string>
      wrong;  // a line for each figure beyond its tolerance; those of whole gradients and weights on rank 0 alone
  std::vector<double> curve;  // loss and norm of each step
};
/// Collective. Loss and norm of each step within 2e-5 of PyTorch's, gradients of the first step within 5e-5 and final
/// weights within 1e-4, by parameter.
[[nodiscard]] GoldenRun run_golden(World& world, const Golden& golden, const Variant& variant);

}  // namespace tessera::test
