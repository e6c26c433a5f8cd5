// The instructions of AMX. Written out, not the compiler's intrinsics: GCC's take no template's number for a
// tile, and its loads do not say what memory they read. Compiled by itself and called only where the CPU has
// them; AVX2 is enough for the rest.
#include "kernels/host/amx_bf16/tile_product.hpp"

namespace tessera::kernels::host::amx_bf16 {

namespace {

struct Instructions {
  template <int tile>
  static void zero() {
    asm volatile("tilezero %%tmm%c0" ::"i"(tile));
  }
  template <int tile>
  static void load(const void* from, std::int64_t stride) {
    asm volatile("tileloadd (%0,%1,1), %%tmm%c2" ::"r"(from), "r"(stride), "i"(tile) : "memory");
  }
  template <int tile>
  static void store(void* to, std::int64_t stride) {
    asm volatile("tilestored %%tmm%c2, (%0,%1,1)" ::"r"(to), "r"(stride), "i"(tile) : "memory");
  }
  /// sums += a·b
  template <int sums, int a, int b>
  static void multiply() {
    asm volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" ::"i"(sums), "i"(a), "i"(b));
  }
};

}  // namespace

void enter() {
  static constexpr TileConfig config;
  asm volatile("ldtilecfg %0" ::"m"(config));
}

void leave() { asm volatile("tilerelease"); }  // or every switch of threads would save and load 8 KiB

void pair_tile(const PairTile& tile) { multiply<Instructions>(tile); }

}  // namespace tessera::kernels::host::amx_bf16
