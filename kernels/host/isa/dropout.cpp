// SPDX-License-Identifier: Apache-2.0
// Masks in blocks of random words, so that the loops vectorize.
#include "kernels/host/dropout.hpp"

#include "kernels/host/isa/philox.hpp"

namespace tessera::kernels::host::TESSERA_ISA {
namespace {

template <class T>
void dropout_row(const T* x, T* y, std::int64_t n, std::uint64_t row, const DropoutMask& mask, bool accumulate) {
  const std::int64_t groups = (n + 3) / 4;
  const auto scale = static_cast<Acc<T>>(mask.scale);
  Words words;
  for (std::int64_t first = 0; first < groups; first += block_groups) {
    philox_block(mask.key, row * static_cast<std::uint64_t>(groups) + static_cast<std::uint64_t>(first), words);
    const std::int64_t end = n < 4 * (first + block_groups) ? n : 4 * (first + block_groups);
    for (std::int64_t c = 4 * first; c < end; ++c) {
      const std::int64_t in_block = c - 4 * first;
      const Acc<T> kept = words.w[in_block % 4][in_block / 4] >= mask.threshold ? widen(x[c]) * scale : Acc<T>(0);
      put(y[c], accumulate ? widen(y[c]) + kept : kept);
    }
  }
}

}  // namespace

TESSERA_TABLE_DEFINE(Dropout, dropout, dropout_row<T>)

}  // namespace tessera::kernels::host::TESSERA_ISA
