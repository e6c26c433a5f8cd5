// SPDX-License-Identifier: Apache-2.0
#pragma once
// What a run refuses whose ranks have parts of the same matrices.

#include "runtime/plan/plan.hpp"

namespace tessera::plan {

/// Throws Error (usage) if the ranks of the tensor axis cannot have equal parts of a micro-batch's tokens, or if
/// something else of the run has not been shown to give what one rank gives.
void check_tensor(const RunSpec& spec);

}  // namespace tessera::plan
