// SPDX-License-Identifier: Apache-2.0
#pragma once
// What the ranks of a run compare before the first step.

#include <string>

#include "runtime/plan/plan.hpp"

namespace tessera::plan {

/// What of a plan must be equal on all ranks, as text: mesh, dtypes, collectives, batch, parameters, and a hash of the
/// layout (which elements of which parameters are where in each unit, and how each unit is sharded).
[[nodiscard]] std::string fingerprint(const RunPlan& plan);

}  // namespace tessera::plan
