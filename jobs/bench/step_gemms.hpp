// SPDX-License-Identifier: Apache-2.0
#pragma once
// The GEMMs of a training step on a GPU, each with its time: `tessera bench step --gemms`.

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "jobs/cli/options/options.hpp"
#include "kernels/gemm_choice.hpp"
#include "runtime/train/trainer.hpp"

namespace tessera::jobs {

/// The GEMMs of a step of rank 0's GPU, the one that takes the most time of a step first.
struct StepGemms {
  std::vector<kernels::RecordedGemm> all;
  double step_seconds = 0;  // of a step with them
  double peak = 0;          // FLOP/s of the GPU; 0: not known

  [[nodiscard]] double seconds() const;
  [[nodiscard]] double flops() const;
};

/// Throws Error (usage) where `--gemms` is given and the run computes on the CPU.
void check_gemms(const Options& options, Device device);
/// Collective, after the trainer's last step: the GEMMs of a step, timed by rank 0 with the algorithms that they have,
/// on the memory of a warm-up step, whose activations and gradients are overwritten. Empty on other ranks.
[[nodiscard]] std::vector<kernels::RecordedGemm> time_step_gemms(World& world, train::Trainer& trainer,
                                                                 const train::WarmupArgs& step);
/// Logs a table.
void print_gemms(const std::string& name, const StepGemms& gemms);
[[nodiscard]] nlohmann::ordered_json gemms_json(const StepGemms& gemms);

}  // namespace tessera::jobs
