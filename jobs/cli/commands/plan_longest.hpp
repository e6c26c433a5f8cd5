// SPDX-License-Identifier: Apache-2.0
#pragma once
// `tessera plan --device_memory`: the longest rows that fit, by what is kept of activations.

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "runtime/plan/plan.hpp"

namespace tessera::jobs {

struct LongestRow {
  std::string options;  // "--gradient_checkpointing full"
  std::int64_t tokens;  // T; 0: none fits
};
/// Of each form of recomputation, and of the full one with activations in host memory, for the micro-batch and the
/// ranks of `spec`. Empty with samples end to end (RunSpec::flat_tokens).
[[nodiscard]] std::vector<LongestRow> longest_by_form(const plan::RunSpec& spec, std::size_t device_memory);
void print_longest(const std::vector<LongestRow>& rows, const plan::RunSpec& spec);
[[nodiscard]] nlohmann::ordered_json longest_json(const std::vector<LongestRow>& rows);

}  // namespace tessera::jobs
