// SPDX-License-Identifier: Apache-2.0
#pragma once
// Golden runs on ranks as threads, as GoogleTest expects them.

#include "tests/train/golden.hpp"

namespace tessera::test {

/// Expects the run to be within the tolerances of run_golden; returns its curve.
std::vector<double> check(const Golden& golden, const Variant& variant);

/// Checks the run of every strategy on 1 to 4 ranks; on a mesh of one axis all have the same bits. 3 ranks have
/// deferred streams.
void expect_golden_of_every_strategy(const Golden& golden);

}  // namespace tessera::test
