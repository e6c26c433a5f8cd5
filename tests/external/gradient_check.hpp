// SPDX-License-Identifier: Apache-2.0
#pragma once
// Holds RecurrentBlock's backward against finite differences of its forward, in double.

namespace recurrent {

/// Prints the worst relative error of each gradient, and returns the worst of all.
[[nodiscard]] double gradient_check();

}  // namespace recurrent
