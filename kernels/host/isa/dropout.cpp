// SPDX-License-Identifier: Apache-2.0
// Random words of a block of columns, then the mask.
#include "kernels/host/dropout.hpp"

#include "kernels/host/isa/philox.hpp"

namespace tessera::kernels::host::TESSERA_ISA {
namespace {

constexpr int block_columns = 4 * block_counters;

/// Shuffle indices that interleave the lower (half 0) or the upper (half 1) lanes of two registers.
inline Counters interleaved(int half) {
  Counters indices;
  for (int i = 0; i < counters_width / 2; ++i) {
    indices[2 * i] = static_cast<std::uint64_t>(half * counters_width / 2 + i);
    indices[2 * i + 1] = indices[2 * i] + counters_width;
  }
  return indices;
}

/// words[4·g + i]: word i of counter first + g, for the counters of a block.
inline void block_words(std::uint64_t key, std::uint64_t first, std::uint32_t* words) {
  for (int g = 0; g < block_counters; g += philox_counters) {
    const PhiloxWords random = philox_words(key, first + static_cast<std::uint64_t>(g));
    for (int r = 0; r < philox_registers; ++r) {
      const Counters low = (random.w[0][r] & 0xffffffff) | random.w[1][r] << 32,
                     high = (random.w[2][r] & 0xffffffff) | random.w[3][r] << 32;
      for (int half = 0; half < 2; ++half) {
        const Counters columns = __builtin_shuffle(low, high, interleaved(half));
        __builtin_memcpy(words + 4 * g + (2 * r + half) * 2 * counters_width, &columns, sizeof columns);
      }
    }
  }
}

/// vec_width<T> words, zero-extended to the width of Acc<T>.
template <class T>
inline auto load_random_words(const std::uint32_t* words) {
  typedef std::uint32_t Stored __attribute__((vector_size(4 * vec_width<T>)));
  Stored stored;
  __builtin_memcpy(&stored, words, sizeof stored);
  return __builtin_convertvector(stored, typename Real<Vec<T>>::Bits);
}

template <class T>
void dropout_row(const T* x, T* y, std::int64_t n, std::uint64_t row, const DropoutMask& mask, bool accumulate) {
  const std::uint64_t row_begin = row * static_cast<std::uint64_t>((n + 3) / 4);
  const auto scale = static_cast<Acc<T>>(mask.scale);
  alignas(64) std::uint32_t words[block_columns];
  for (std::int64_t first = 0; first < n; first += block_columns) {
    block_words(mask.key, row_begin + static_cast<std::uint64_t>(first / 4), words);
    for_each_register<T>(n - first < block_columns ? n - first : block_columns, [&](std::int64_t c, const auto& part) {
      const Vec<T> scaled = part.load(x + first + c) * scale;
      const Vec<T> kept = load_random_words<T>(words + c) >= mask.threshold ? scaled : Vec<T>{};
      part.store(y + first + c, accumulate ? part.load(y + first + c) + kept : kept);
    });
  }
}

}  // namespace

TESSERA_TABLE_DEFINE(Dropout, dropout, dropout_row<T>)

}  // namespace tessera::kernels::host::TESSERA_ISA
