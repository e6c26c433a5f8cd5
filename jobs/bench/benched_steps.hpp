// SPDX-License-Identifier: Apache-2.0
#pragma once
// What benchmarks of training steps share: the model and options of the command line, and random tokens for the steps.

#include "jobs/bench/tools.hpp"
#include "jobs/cli/options/options.hpp"
#include "jobs/cli/session/setup.hpp"

namespace tessera::jobs {

struct BenchedSteps {
  /// Collective. Throws Error as `train` does.
  BenchedSteps(const Options& options, World& world);
  BenchedSteps(const BenchedSteps&) = delete;  // `trainer` refers to `model`
  /// Tokens of `steps` steps, and of `more` before them.
  [[nodiscard]] RandomTokens tokens(std::int64_t more) const;
  /// Logs the program's version and the model.
  void print() const;

  int threads;  // of this rank
  ModelConfig config;
  models::Model model;
  train::TrainerOptions trainer;
  std::int64_t steps;  // --bench_steps
};

}  // namespace tessera::jobs
