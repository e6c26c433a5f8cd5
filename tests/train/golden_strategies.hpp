// SPDX-License-Identifier: Apache-2.0
#pragma once
// A golden run under every strategy.

#include "tests/train/golden.hpp"

namespace tessera::test {

/// Compares the run of every strategy on 1 to 4 ranks: all within the tolerances, and on a mesh of one axis the same
/// bits. 3 ranks have deferred streams.
void expect_golden_of_every_strategy(const Golden& golden);

}  // namespace tessera::test
