// SPDX-License-Identifier: Apache-2.0
// The number of threads and the instruction set of this process.
#include "kernels/threads.hpp"

#include <atomic>
#include <cstdlib>

#include "kernels/host/dispatch.hpp"
#include "runtime/base/error.hpp"

namespace tessera::kernels {

namespace {

std::atomic<int> num_threads{1};
std::atomic<int> chosen{-1};

bool cpu_has(Isa isa) {
#ifdef TESSERA_X86
  __builtin_cpu_init();
  const bool v3 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("bmi") &&
                  __builtin_cpu_supports("bmi2");
  const bool v4 = v3 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                  __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("avx512dq") &&
                  __builtin_cpu_supports("avx512vl");
  switch (isa) {
    case Isa::portable: return true;
    case Isa::avx2: return v3;
    case Isa::avx512: return v4;
    case Isa::avx512_bf16: return v4 && __builtin_cpu_supports("avx512bf16");
  }
#endif
  return isa == Isa::portable;
}

bool is_built([[maybe_unused]] Isa isa) {
#ifdef TESSERA_ONE_ISA
#define TESSERA_NAME_OF(isa) #isa
#define TESSERA_NAME(isa) TESSERA_NAME_OF(isa)
  return std::string(name_of(isa)) == TESSERA_NAME(TESSERA_ONE_ISA);
#else
  return true;
#endif
}

void require(Isa isa, const char* where) {
  if (!is_built(isa))
    throw Error(ExitCode::usage, strfmt("this build has no kernels for %s", name_of(isa)), where,
                "Configure it with -DTESSERA_ISA=all");
  if (cpu_has(isa)) return;
  throw Error(ExitCode::usage, strfmt("this CPU has no %s", name_of(isa)), where,
              "Choose portable, or unset it for the best available");
}

Isa first_choice() {
  if (const char* word = std::getenv("TESSERA_ISA"); word && *word) {
    for (const Isa isa : all_isas) {
      if (std::string(word) != name_of(isa)) continue;
      require(isa, "TESSERA_ISA");
      return isa;
    }
    throw Error(ExitCode::usage, strfmt("unknown instruction set '%s'", word), "TESSERA_ISA",
                "Use portable, avx2, avx512 or avx512_bf16");
  }
  for (const Isa isa : {Isa::avx512_bf16, Isa::avx512, Isa::avx2, Isa::portable})
    if (is_built(isa) && cpu_has(isa)) return isa;
  throw Error(ExitCode::usage, "this build's kernels are for another CPU", "TESSERA_ISA when it was configured",
              "Configure it with -DTESSERA_ISA=all, or native");
}

}  // namespace

void set_threads(int threads) {
  TESSERA_ASSERT(threads >= 1, "%d threads", threads);
#ifndef _OPENMP
  threads = 1;
#endif
  num_threads.store(threads, std::memory_order_relaxed);
}

int threads() { return num_threads.load(std::memory_order_relaxed); }

const char* name_of(Isa isa) {
  static constexpr const char* names[] = {"portable", "avx2", "avx512", "avx512_bf16"};
  return names[static_cast<int>(isa)];
}

int host::isa_index() {
  const int now = chosen.load(std::memory_order_relaxed);
  if (now >= 0) return now;
  int none = -1;  // several threads may compute it and agree; set_isa overrides
  chosen.compare_exchange_strong(none, static_cast<int>(first_choice()), std::memory_order_relaxed);
  return chosen.load(std::memory_order_relaxed);
}

Isa isa() { return static_cast<Isa>(host::isa_index()); }

const char* cpu_maker() {
#ifdef TESSERA_X86
  __builtin_cpu_init();
  if (__builtin_cpu_is("amd")) return "AMD";
  if (__builtin_cpu_is("intel")) return "Intel";
#endif
  return "another maker";
}

void set_isa(Isa isa) {
  require(isa, "set_isa");
  chosen.store(static_cast<int>(isa), std::memory_order_relaxed);
}

}  // namespace tessera::kernels
