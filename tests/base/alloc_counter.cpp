// SPDX-License-Identifier: Apache-2.0
// Interposes malloc and its family: counts each call and forwards it to glibc.
#include "alloc_counter.hpp"

#include <dlfcn.h>
#include <unwind.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <string_view>

namespace {

std::atomic<std::int64_t> count{0}, bytes{0};
// initial-exec: access must not allocate, not even the first time in a thread.
__attribute__((tls_model("initial-exec"))) thread_local std::int64_t count_here = 0;

enum class Owner { runtime, tessera, library };

/// Of the module that contains `pc`.
Owner owner_of(const void* pc) {
  static const void* const executable = [] {
    Dl_info self{};
    dladdr(reinterpret_cast<const void*>(&count), &self);
    return static_cast<const void*>(self.dli_fbase);
  }();
  Dl_info info{};
  if (dladdr(pc, &info) == 0 || info.dli_fname == nullptr || info.dli_fbase == executable) return Owner::tessera;
  const std::string_view path = info.dli_fname, name = path.substr(path.rfind('/') + 1);
  if (name.starts_with("libtessera_")) return Owner::tessera;
  for (const std::string_view runtime : {"libc.so", "libm.so", "libpthread.so", "ld-linux", "libstdc++.so",
                                         "libgcc_s.so", "libasan.so", "libtsan.so", "libubsan.so", "liblsan.so"})
    if (name.starts_with(runtime)) return Owner::runtime;
  return Owner::library;
}

struct Search {
  const void* caller;  // of malloc; frames before it are this file's
  bool reached = false;
  Owner owner = Owner::tessera;
};

/// Who allocates, for a malloc that returns to `caller`.
Owner owner_of_call(const void* caller) {
  Search search{.caller = caller};
  _Unwind_Backtrace(
      [](_Unwind_Context* context, void* data) {
        auto& s = *static_cast<Search*>(data);
        const auto* const pc = reinterpret_cast<const void*>(_Unwind_GetIP(context));
        s.reached = s.reached || pc == s.caller;
        if (!s.reached) return _URC_NO_REASON;
        const Owner owner = owner_of(pc);
        if (owner == Owner::runtime) return _URC_NO_REASON;
        s.owner = owner;
        return _URC_END_OF_STACK;
      },
      &search);
  return search.owner;
}

/// What a watch has seen. Blocks of libraries stand in a table of fixed size, so that their release is seen too; one
/// that finds no slot counts as never released.
struct Watched {
  std::atomic<bool> on{false};
  std::atomic<std::int64_t> tessera{0}, libraries{0};
  std::atomic_flag lock = ATOMIC_FLAG_INIT;
  struct Block {
    const volatile void* at = nullptr;
    std::int64_t bytes = 0;
  };
  std::array<Block, 1024> blocks;
  std::int64_t alive = 0, peak = 0;
};
constinit Watched watched;

class Locked {
 public:
  Locked() {
    while (watched.lock.test_and_set(std::memory_order_acquire)) {}
  }
  ~Locked() { watched.lock.clear(std::memory_order_release); }
  Locked(const Locked&) = delete;
  Locked& operator=(const Locked&) = delete;
};

void attribute(const volatile void* block, std::int64_t size, const void* caller) {
  if (owner_of_call(caller) != Owner::library) {
    ++watched.tessera;
    return;
  }
  ++watched.libraries;
  const Locked locked;
  watched.alive += size;
  watched.peak = std::max(watched.peak, watched.alive);
  for (Watched::Block& b : watched.blocks)
    if (b.at == nullptr) {
      b = {block, size};
      return;
    }
}

void note(const volatile void* block, std::size_t size, const void* caller) {
  count.fetch_add(1, std::memory_order_relaxed);
  bytes.fetch_add(static_cast<std::int64_t>(size), std::memory_order_relaxed);
  ++count_here;
  if (watched.on.load(std::memory_order_relaxed)) attribute(block, static_cast<std::int64_t>(size), caller);
}

void note_free(const volatile void* block) {
  if (block == nullptr || !watched.on.load(std::memory_order_relaxed)) return;
  const Locked locked;
  for (Watched::Block& b : watched.blocks)
    if (b.at == block) {
      watched.alive -= b.bytes;
      b = {};
      return;
    }
}

}  // namespace

namespace tessera {

std::int64_t alloc_count() { return count.load(); }
std::int64_t alloc_count_here() { return count_here; }
std::int64_t alloc_bytes() { return bytes.load(); }

AllocWatch::AllocWatch() {
  (void)owner_of_call(nullptr);  // what the unwinder and dladdr prepare at their first use
  watched.tessera = watched.libraries = watched.alive = watched.peak = 0;
  watched.blocks = {};
  watched.on = true;
}
AllocWatch::~AllocWatch() { watched.on = false; }
std::int64_t AllocWatch::tessera() const { return watched.tessera; }
std::int64_t AllocWatch::libraries() const { return watched.libraries; }
std::int64_t AllocWatch::library_bytes() const {
  const Locked locked;
  return watched.alive;
}
std::int64_t AllocWatch::peak_library_bytes() const {
  const Locked locked;
  return watched.peak;
}

}  // namespace tessera

#ifdef TESSERA_SANITIZED

extern "C" int __sanitizer_install_malloc_and_free_hooks(void (*malloc_hook)(const volatile void*, std::size_t),
                                                         void (*free_hook)(const volatile void*));
namespace {
// Functions, not lambdas: unoptimized, a lambda's caller is the conversion to a function pointer.
void on_malloc(const volatile void* block, std::size_t size) { note(block, size, __builtin_return_address(0)); }
void on_free(const volatile void* block) { note_free(block); }
[[maybe_unused]] const int installed = __sanitizer_install_malloc_and_free_hooks(on_malloc, on_free);
}  // namespace

#else

extern "C" {

void* __libc_malloc(std::size_t size);
void* __libc_calloc(std::size_t number, std::size_t size);
void* __libc_realloc(void* old, std::size_t size);
void* __libc_memalign(std::size_t alignment, std::size_t size);
void __libc_free(void* block);

void* malloc(std::size_t size) {
  void* const block = __libc_malloc(size);
  note(block, size, __builtin_return_address(0));
  return block;
}

void* calloc(std::size_t number, std::size_t size) {
  void* const block = __libc_calloc(number, size);
  note(block, number * size, __builtin_return_address(0));
  return block;
}

void* realloc(void* old, std::size_t size) {
  note_free(old);
  void* const block = __libc_realloc(old, size);
  note(block, size, __builtin_return_address(0));
  return block;
}

void* memalign(std::size_t alignment, std::size_t size) {
  void* const block = __libc_memalign(alignment, size);
  note(block, size, __builtin_return_address(0));
  return block;
}

void* aligned_alloc(std::size_t alignment, std::size_t size) {
  void* const block = __libc_memalign(alignment, size);
  note(block, size, __builtin_return_address(0));
  return block;
}

int posix_memalign(void** out, std::size_t alignment, std::size_t size) {
  if (alignment == 0 || (alignment & (alignment - 1)) != 0 || alignment % sizeof(void*) != 0) return EINVAL;
  void* const block = __libc_memalign(alignment, size);
  note(block, size, __builtin_return_address(0));
  if (!block) return ENOMEM;
  *out = block;
  return 0;
}

void free(void* block) {
  note_free(block);
  __libc_free(block);
}

}  // extern "C"

#endif
