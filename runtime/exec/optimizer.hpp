// SPDX-License-Identifier: Apache-2.0
#pragma once
// Optimizer: updates one shard from its reduced gradient. The scalars of a step are its own.

#include <cstdint>

#include "kernels/step.hpp"
#include "runtime/base/stream.hpp"
#include "runtime/shard/manager.hpp"

namespace tessera::exec {

class Optimizer {
 public:
  virtual ~Optimizer() = default;
  /// The scalars of update `update` (1-based).
  [[nodiscard]] virtual kernels::OptimizerScalars scalars(std::int64_t update, double learning_rate) const = 0;
  /// Updates the shard of a unit. `step` is in the memory of the shard's device; its `optimizer` is what scalars()
  /// returned. Allocates nothing.
  virtual void update(const shard::UpdateView& shard, const kernels::StepScalars* step, StreamView stream) = 0;
};

}  // namespace tessera::exec
