// SPDX-License-Identifier: Apache-2.0
#pragma once
// Counts the kinds of kernels and copies that the simulated device is given: a test that a warm-up step has all of
// them.

#include <cstddef>

namespace tessera::simulated {

/// Two launches are of one kind if the same function in the source made them: their closures have one type.
struct KernelKinds {
  void (*clear)();
  std::size_t (*count)();  // of those launched since clear()
};

/// For dlsym, as wait_order_name.
inline constexpr const char* kernel_kinds_name = "tessera_simulated_kernel_kinds";
extern "C" const KernelKinds* tessera_simulated_kernel_kinds();

}  // namespace tessera::simulated
