// SPDX-License-Identifier: Apache-2.0
// An operator new that counts bytes, for tests of how much memory a file can make the program allocate.

#include <cstddef>
#include <cstdlib>
#include <new>
#include <utility>

namespace {
thread_local std::size_t allocated = 0;
}

namespace tessera::test {
std::size_t allocated_bytes() { return std::exchange(allocated, 0); }
}  // namespace tessera::test

void* operator new(std::size_t size) {
  allocated += size;
  if (void* p = std::malloc(size != 0 ? size : 1)) return p;
  throw std::bad_alloc();
}
void* operator new(std::size_t size, const std::nothrow_t&) noexcept {
  allocated += size;
  return std::malloc(size != 0 ? size : 1);
}
void operator delete(void* p) noexcept { std::free(p); }
void operator delete(void* p, std::size_t) noexcept { std::free(p); }
void operator delete(void* p, const std::nothrow_t&) noexcept { std::free(p); }
