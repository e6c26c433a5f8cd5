// malloc and its kin, counted and handed on.
#include "alloc_counter.hpp"

#include <atomic>
#include <cerrno>
#include <cstddef>

namespace {

std::atomic<std::int64_t> count{0}, bytes{0};
// initial-exec: access must not allocate, not even the first time in a thread.
__attribute__((tls_model("initial-exec"))) thread_local std::int64_t count_here = 0;

void note(std::size_t size) {
  count.fetch_add(1, std::memory_order_relaxed);
  bytes.fetch_add(static_cast<std::int64_t>(size), std::memory_order_relaxed);
  ++count_here;
}

}  // namespace

namespace tessera {
std::int64_t alloc_count() { return count.load(); }
std::int64_t alloc_count_here() { return count_here; }
std::int64_t alloc_bytes() { return bytes.load(); }
}  // namespace tessera

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)

extern "C" int __sanitizer_install_malloc_and_free_hooks(void (*malloc_hook)(const volatile void*, std::size_t),
                                                         void (*free_hook)(const volatile void*));
namespace {
[[maybe_unused]] const int installed = __sanitizer_install_malloc_and_free_hooks(
    [](const volatile void*, std::size_t size) { note(size); }, [](const volatile void*) {});
}

#else

extern "C" {

void* __libc_malloc(std::size_t size);
void* __libc_calloc(std::size_t number, std::size_t size);
void* __libc_realloc(void* old, std::size_t size);
void* __libc_memalign(std::size_t alignment, std::size_t size);

void* malloc(std::size_t size) {
  note(size);
  return __libc_malloc(size);
}

void* calloc(std::size_t number, std::size_t size) {
  note(number * size);
  return __libc_calloc(number, size);
}

void* realloc(void* old, std::size_t size) {
  note(size);
  return __libc_realloc(old, size);
}

void* memalign(std::size_t alignment, std::size_t size) {
  note(size);
  return __libc_memalign(alignment, size);
}

void* aligned_alloc(std::size_t alignment, std::size_t size) {
  note(size);
  return __libc_memalign(alignment, size);
}

int posix_memalign(void** out, std::size_t alignment, std::size_t size) {
  if (alignment == 0 || (alignment & (alignment - 1)) != 0 || alignment % sizeof(void*) != 0) return EINVAL;
  note(size);
  void* const memory = __libc_memalign(alignment, size);
  if (!memory) return ENOMEM;
  *out = memory;
  return 0;
}

}  // extern "C"

#endif
