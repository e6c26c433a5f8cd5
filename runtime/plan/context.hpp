// SPDX-License-Identifier: Apache-2.0
#pragma once
// What a run whose ranks share rows refuses.

#include "runtime/plan/plan.hpp"

namespace tessera::plan {

/// Throws Error (usage) if the ranks of a context cannot have equal parts of rows of T tokens, or if something else of
/// the run has not been shown to give what one rank gives.
void check_context(const RunSpec& spec);
/// The longest max_length up to the run's that the ranks of a micro-batch divide: two parts for each of those that
/// share rows by gather.
[[nodiscard]] std::int64_t whole_length(const RunSpec& spec);

}  // namespace tessera::plan
