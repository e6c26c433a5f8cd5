#pragma once
// AMX's tiles in plain C++, after the pseudocode of Intel's manual (volume 2: LDTILECFG, TILELOADD, TILESTORED,
// TDPBF16PS). What would raise an exception on the CPU ends the process with words.

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
    for (int t = 0; t < 16; ++t)
      require(config_.rows[t] <= (t < 8 ? 16 : 0) && config_.row_bytes[t] <= (t < 8 ? 64 : 0),
              "8 tiles of 16 rows of 64 bytes");
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
    const auto* const bytes = static_cast<const char*>(from);
    for (int r = 0; r < config_.rows[t]; ++r) std::memcpy(tiles_[t][r], bytes + r * stride, config_.row_bytes[t]);
  }
  void store(int t, void* to, std::int64_t stride) {
    use(t);
    auto* const bytes = static_cast<char*>(to);
    for (int r = 0; r < config_.rows[t]; ++r) std::memcpy(bytes + r * stride, tiles_[t][r], config_.row_bytes[t]);
  }

  /// TDPBF16PS: even and odd numbers of k in chains of their own from 0, their sum, then the addition to what was
  /// there.
  void multiply(int sums, int a, int b) {
    use(sums), use(a), use(b);
    require(sums != a && sums != b && a != b, "three tiles");
    require(config_.row_bytes[a] % 4 == 0 && config_.row_bytes[sums] % 4 == 0, "rows of whole words");
    require(config_.row_bytes[a] / 4 == config_.rows[b], "as many pairs in a row of A as rows of B");
    require(config_.rows[a] == config_.rows[sums] && config_.row_bytes[b] == config_.row_bytes[sums],
            "C high as A, wide as B");
    const Wide x(tiles_[a]), y(tiles_[b]);
    for (int m = 0; m < config_.rows[sums]; ++m) {
      float even[16] = {}, odd[16] = {};
      for (int k = 0; k < config_.rows[b]; ++k)
        for (int n = 0; n < 16; ++n) {
          even[n] = plus(even[n], x.even[m][k], y.even[k][n], x.tame && y.tame);
          odd[n] = plus(odd[n], x.odd[m][k], y.odd[k][n], x.tame && y.tame);
        }
      for (int n = 0; n < config_.row_bytes[sums] / 4; ++n) {
        std::uint32_t& word = tiles_[sums][m][n];
        word = half::bits(flushed(flushed(half::number(word)) + flushed(even[n] + odd[n])));
      }
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
  /// sum + x·y, rounded once. Of tame numbers the product is exact, and no sum of such products is subnormal.
  static float plus(float sum, float x, float y, bool tame) {
    return tame ? sum + x * y : flushed(std::fma(x, y, sum));
  }

  /// The numbers of a tile of pairs.
  struct Wide {
    float even[16][16], odd[16][16];
    bool tame = true;
    explicit Wide(const std::uint32_t (&words)[16][16]) {
      const auto take = [this](std::uint32_t bits) {
        const float x = flushed(half::number(bits)), size = std::abs(x);
        tame = tame && (x == 0 || (size > 0x1p-40F && size < 0x1p40F));
        return x;
      };
      for (int r = 0; r < 16; ++r)
        for (int c = 0; c < 16; ++c) even[r][c] = take(words[r][c] << 16), odd[r][c] = take(words[r][c] & 0xffff0000);
    }
  };

  host::amx_bf16::TileConfig config_;
  std::uint32_t tiles_[8][16][16] = {};
  bool is_on_ = false;
};

/// The instruction layer of tile_product.hpp over the model.
struct ModelTiles {
  template <int tile>
  static void zero() {
    AmxModel::own().zero(tile);
  }
  template <int tile>
  static void load(const void* from, std::int64_t stride) {
    AmxModel::own().load(tile, from, stride);
  }
  template <int tile>
  static void store(void* to, std::int64_t stride) {
    AmxModel::own().store(tile, to, stride);
  }
  template <int sums, int a, int b>
  static void multiply() {
    AmxModel::own().multiply(sums, a, b);
  }
};

inline void enter_model() {
  const host::amx_bf16::TileConfig config;
  AmxModel::own().configure(&config);
}
inline const host::PairKernel modelled_amx{.name = "amx modelled",
                                           .shape = host::tile_shape,
                                           .tile = host::amx_bf16::multiply<ModelTiles>,
                                           .enter = enter_model,
                                           .leave = [] { AmxModel::own().release(); }};

}  // namespace tessera::kernels
