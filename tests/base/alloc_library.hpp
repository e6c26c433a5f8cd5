// SPDX-License-Identifier: Apache-2.0
#pragma once
// A shared library that is not Tessera's, for alloc_counter_test.

#include <cstddef>

namespace tessera {

/// malloc(bytes), called by the library.
[[nodiscard]] void* library_allocate(std::size_t bytes);
/// Calls f from the library.
void library_call(void (*f)());

}  // namespace tessera
