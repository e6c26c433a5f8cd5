// CPUID, XCR0 and the one system call of AMX.
#include "kernels/host/cpu.hpp"

#include "kernels/host/dispatch.hpp"
#include "runtime/base/error.hpp"

#ifdef TESSERA_X86
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#endif

namespace tessera::kernels::host {

#ifdef TESSERA_X86

namespace {

struct Registers {
  unsigned a = 0, b = 0, c = 0, d = 0;
};
Registers cpuid(unsigned leaf, unsigned subleaf = 0) {
  Registers r;
  __get_cpuid_count(leaf, subleaf, &r.a, &r.b, &r.c, &r.d);  // zeros if the CPU lacks the leaf
  return r;
}
bool has(unsigned word, unsigned bit) { return (word >> bit & 1) != 0; }

constexpr unsigned tile_config = 17, tile_data = 18;  // of XCR0: state that the kernel saves

unsigned saved_state() {
  if (!has(cpuid(1).c, 27)) return 0;  // OSXSAVE
  unsigned low = 0, high = 0;
  asm volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return low;
}

}  // namespace

std::string cpu_name() {
  std::string name;
  if (cpuid(0x80000000).a >= 0x80000004)
    for (unsigned leaf = 0x80000002; leaf <= 0x80000004; ++leaf) {
      const Registers r = cpuid(leaf);
      char part[sizeof r];
      std::memcpy(part, &r, sizeof r);
      name.append(part, sizeof r);
    }
  name = name.substr(0, name.find('\0'));
  while (name.starts_with(' ')) name.erase(0, 1);
  while (name.ends_with(' ')) name.pop_back();
  return name.empty() ? "this CPU" : name;
}

std::string avx512_bf16_missing() { return has(cpuid(7, 1).a, 5) ? "" : "the CPU lacks it"; }

std::string amx_bf16_missing() {
  const unsigned features = cpuid(7).d;
  if (!has(features, 22) || !has(features, 24)) return "the CPU lacks it";  // AMX-BF16, AMX-TILE
  const unsigned saved = saved_state();
  if (!has(saved, tile_config) || !has(saved, tile_data)) return "the kernel does not save its registers";
  constexpr long ask_permission = 0x1023;  // ARCH_REQ_XCOMP_PERM
  if (::syscall(SYS_arch_prctl, ask_permission, tile_data) != 0)
    return strfmt("Linux does not grant its registers (%s)", std::strerror(errno));
  return "";
}

#else

std::string cpu_name() { return "this CPU"; }
std::string avx512_bf16_missing() { return "the CPU lacks it"; }
std::string amx_bf16_missing() { return "the CPU lacks it"; }

#endif

}  // namespace tessera::kernels::host
