#pragma once
// AMX's tiles in plain C++, after the pseudocode of Intel's manual (volume 2: LDTILECFG, TILELOADD, TILESTORED, TDPBF16PS). What would raise an
// exception on the CPU ends the process with words.

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "kernels/host/amx_bf16/tile_product.hpp"
#include "runtime/base/half.hpp"

namespace tessera::kernels {

class AmxModel {
 public:
  /// Each thread has its own, as each core.
  [[nodiscard]] static AmxModel& own() {
    thread_local AmxModel one;
    return one;
  }

  void configure(const void* from) {
    std::memcpy(&config_, from, sizeof config_);
    require(config_.palette == 1 && config_.start_row == 0, "palette 1 from row 0");
    for (const std::uint8_t x : config_.reserved) require(x == 0, "reserved bytes are 0");
    for (int t = 0; t < 16; ++t) require(config_.rows[t] <= (t < 8 ? 16 : 0) && config_.row_bytes[t] <= (t < 8 ? 64 : 0), "tiles of 16 rows of 64 bytes");
    std::memset(tiles_, 0, sizeof tiles_);
    is_on_ = true;
  }
  void release() { is_on_ = false; }

  void zero(int t) {
    use(t);
    std::memset(tiles_[t], 0, sizeof tiles_[t]);
  }
  void load(int t, const void* from, std::int64_t stride) {
    zero(t);
    for (int r = 0; r < config_.rows[t]; ++r) std::memcpy(tiles_[t][r], static_cast<const char*>(from) + r * stride, config_.row_bytes[t]);
  }
  void store(int t, void* to, std::int64_t stride) {
    use(t);
    for (int r = 0; r < config_.rows[t]; ++r) std::memcpy(static_cast<char*>(to) + r * stride, tiles_[t][r], config_.row_bytes[t]);
  }

  /// TDPBF16PS: even and odd numbers of k in chains of their own from 0, their sum, then the addition to what was there.
  void multiply(int sums, int a, int b) {
    use(sums), use(a), use(b);
    require(sums != a && sums != b && a != b, "three tiles");
    require(config_.row_bytes[a] % 4 == 0 && config_.row_bytes[sums] % 4 == 0, "rows of whole words");
    require(config_.row_bytes[a] / 4 == config_.rows[b], "as many pairs in a row of A as rows of B");
    require(config_.rows[a] == config_.rows[sums] && config_.row_bytes[b] == config_.row_bytes[sums], "C as high as A and as wide as B");
    for (int m = 0; m < config_.rows[sums]; ++m)
      for (int n = 0; n < config_.row_bytes[sums] / 4; ++n) {
        float even = 0, odd = 0;
        for (int k = 0; k < config_.rows[b]; ++k) {
          const std::uint32_t x = tiles_[a][m][k], y = tiles_[b][k][n];
          even = plus(even, half::number(x << 16), half::number(y << 16));
          odd = plus(odd, half::number(x & 0xffff0000), half::number(y & 0xffff0000));
        }
        std::uint32_t& word = tiles_[sums][m][n];
        word = half::bits(flushed(flushed(half::number(word)) + flushed(even + odd)));
      }
  }

 private:
  static void require(bool holds, const char* what) {
    if (holds) return;
    std::fprintf(stderr, "AMX would raise an exception: %s\n", what);
    std::abort();
  }
  void use(int t) const {
    require(is_on_, "tiles are configured");
    require(t >= 0 && t < 8 && config_.rows[t] > 0 && config_.row_bytes[t] > 0, "a tile that there is");
  }
  /// Subnormal numbers are zero, on the way in and out.
  static float flushed(float x) { return std::abs(x) < 0x1p-126F ? std::copysign(0.0F, x) : x; }
  /// sum + x·y, rounded once. x·y of bf16 is exact in fp32, but near the ends of the range.
  static float plus(float sum, float x, float y) {
    x = flushed(x), y = flushed(y);
    const float product = x * y;
    const bool is_exact = x == 0 || y == 0 || (std::abs(product) >= 0x1p-100F && std::abs(product) < 0x1p127F);
    return flushed(is_exact ? sum + product : std::fma(x, y, sum));
  }

  host::amx_bf16::TileConfig config_;
  std::uint32_t tiles_[8][16][16] = {};
  bool is_on_ = false;
};

/// The instruction layer of tile_product.hpp over the model.
struct ModelTiles {
  template <int tile>
  static void zero() { AmxModel::own().zero(tile); }
  template <int tile>
  static void load(const void* from, std::int64_t stride) { AmxModel::own().load(tile, from, stride); }
  template <int tile>
  static void store(void* to, std::int64_t stride) { AmxModel::own().store(tile, to, stride); }
  template <int sums, int a, int b>
  static void multiply() { AmxModel::own().multiply(sums, a, b); }
};

inline const host::PairKernel modelled_amx{.name = "amx modelled", .shape = host::tile_shape, .tile = host::amx_bf16::multiply<ModelTiles>,
                                           .enter = [] { const host::amx_bf16::TileConfig config; AmxModel::own().configure(&config); },
                                           .leave = [] { AmxModel::own().release(); }};

}  // namespace tessera::kernels
