// SPDX-License-Identifier: Apache-2.0
#pragma once
// Checkpoints to damage, and what a load says of them.

#include <string>

#include "io/checkpoint/checkpoint.hpp"
#include "tests/fault_injection/test_state.hpp"

namespace tessera::test {

/// Saves `step` of `tensors` by two ranks.
void make_checkpoint(const TestTensors& tensors, const std::string& directory, std::int64_t step = 3,
                     std::uint64_t file_bytes = io::SaveRequest::default_file_bytes);

/// The error of a full load on `ranks` ranks; "" if there is none. Fails the test if ranks disagree.
[[nodiscard]] std::string load_says(const TestTensors& tensors, const std::string& directory, int ranks = 1);

}  // namespace tessera::test
