// SPDX-License-Identifier: Apache-2.0
#pragma once
// The largest runs that fit into a memory.

#include "runtime/plan/plan.hpp"

namespace tessera::plan {

/// Rows of the largest micro-batch whose plan fits, with as many ranks and micro-batches; 0: none does.
[[nodiscard]] std::int64_t largest_micro_batch(const RunSpec& spec, std::size_t device_memory);

/// T of the longest rows whose plan fits, of all ranks that share them, with the micro-batch of `spec`: a multiple of
/// 16 on each of these ranks, and at most what the model has positions for; 0: none does. Not with samples end to end
/// (RunSpec::flat_tokens).
[[nodiscard]] std::int64_t longest_rows(const RunSpec& spec, std::size_t device_memory);

}  // namespace tessera::plan
