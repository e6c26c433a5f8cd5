// SPDX-License-Identifier: Apache-2.0
// Random words of a block of columns, then the mask.
#include "kernels/host/dropout.hpp"

#include "kernels/host/isa/philox.hpp"
#include "kernels/host/isa/register_group.hpp"

namespace tessera::kernels::host::TESSERA_ISA {
namespace {

constexpr int block_columns = 8 * block_counters;

/// Shuffle indices that interleave the lower (half 0) or the upper (half 1) lanes of two registers.
inline Counters interleaved(int half) {
  Counters indices;
  for (int i = 0; i < counters_width / 2; ++i) {
    indices[2 * i] = static_cast<std::uint64_t>(half * counters_width / 2 + i);
    indices[2 * i + 1] = indices[2 * i] + counters_width;
  }
  return indices;
}

/// words[4·g + i]: word i of counter first + g, for `counters` of a block, rounded up to a multiple of philox_counters.
inline void block_words(std::uint64_t key, std::uint64_t first, std::int64_t counters, std::uint32_t* words) {
  for (int g = 0; g < counters; g += philox_counters) {
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

/// vec_width<T> numbers of 16 bits from number `first` of the words on, zero-extended to the width of Acc<T>.
template <class T>
inline auto load_random_numbers(const std::uint32_t* words, std::int64_t first) {
  typedef std::uint16_t Stored __attribute__((vector_size(2 * vec_width<T>)));
  Stored stored;
  __builtin_memcpy(&stored, reinterpret_cast<const char*>(words) + 2 * first, sizeof stored);
  return __builtin_convertvector(stored, typename Real<Vec<T>>::Bits);
}

/// x where a random number is at least the threshold, else 0; the numbers from number `first` of the words on.
template <class T>
[[gnu::always_inline]] inline Vec<T> masked(const Vec<T>& x, const std::uint32_t* words, std::int64_t first,
                                            std::uint16_t threshold) {
  return load_random_numbers<T>(words, first) >= threshold ? x : Vec<T>{};
}
template <class T>
[[gnu::always_inline]] inline RegisterGroup<Acc<T>> masked(const RegisterGroup<Acc<T>>& x, const std::uint32_t* words,
                                                           std::int64_t first, std::uint16_t threshold) {
  RegisterGroup<Acc<T>> y;
#pragma GCC unroll 8
  for (int i = 0; i < group_registers; i += in_pairs<T> ? 2 : 1) {
    if constexpr (in_pairs<T>) {
      VecBits numbers;  // those with even indices in the lower 16 bits
      __builtin_memcpy(&numbers, words + (first + i * vec_width<T>) / 2, sizeof numbers);
      y.at[i] = (numbers & 0xffff) >= threshold ? x.at[i] : Vec<float>{};
      y.at[i + 1] = numbers >> 16 >= threshold ? x.at[i + 1] : Vec<float>{};
    } else {
      y.at[i] = masked<T>(x.at[i], words, first + i * vec_width<T>, threshold);
    }
  }
  return y;
}

template <class T>
void dropout_row(const T* x, T* y, std::int64_t n, std::uint64_t counter, const DropoutMask& mask, bool accumulate) {
  const auto scale = static_cast<Acc<T>>(mask.scale);
  alignas(64) std::uint32_t words[block_columns / 2];
  for (std::int64_t first = 0; first < n; first += block_columns) {
    const std::int64_t columns = n - first < block_columns ? n - first : block_columns;
    block_words(mask.key, counter + static_cast<std::uint64_t>(first / 8), (columns + 7) / 8, words);
    for_each_group<T>(
        columns, [ =, &words ](std::int64_t c, const auto& part) __attribute__((always_inline)) {
          const auto scaled = part.load(x + first + c) * scale;
          const auto kept = masked<T>(scaled, words, c, mask.threshold);
          part.store(y + first + c, accumulate ? part.load(y + first + c) + kept : kept);
        });
  }
}

}  // namespace

TESSERA_TABLE_DEFINE(Dropout, dropout, dropout_row<T>)

}  // namespace tessera::kernels::host::TESSERA_ISA
