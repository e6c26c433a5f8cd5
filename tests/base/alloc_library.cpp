// SPDX-License-Identifier: Apache-2.0
#include "alloc_library.hpp"

#include <cstdlib>

namespace tessera {

void* library_allocate(std::size_t bytes) {
  void* const block = std::malloc(bytes);
  asm volatile("");  // no tail call: the library's frame stays
  return block;
}

void library_call(void (*f)()) {
  f();
  asm volatile("");
}

}  // namespace tessera
