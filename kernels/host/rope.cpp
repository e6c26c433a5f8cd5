// SPDX-License-Identifier: Apache-2.0
// Rotary positions: the table by the C library's cosine and sine, the rotation by host/isa.
#include "kernels/rope.hpp"

#include <cmath>

#include "kernels/host/ops.hpp"
#include "kernels/host/parallel.hpp"
#include "kernels/host/rope.hpp"
#include "kernels/row_stride.hpp"

namespace tessera::kernels::host {

void rope_table(const RopeTableArgs& args) {
  const auto half = static_cast<std::int64_t>(args.inv_freq.size());
  dispatch_float(args.table.dtype, [&]<class T>(T) {
    T* const table = args.table.as<T>();
    const std::int32_t* positions = args.positions ? args.positions.as<std::int32_t>() : nullptr;
    parallel_ranges(args.table.shape[0], 4, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t row = begin; row < end; ++row) {
        const T position = static_cast<T>(positions ? positions[row] : row);
        for (std::int64_t j = 0; j < half; ++j) {
          const T angle = position * static_cast<T>(args.inv_freq[static_cast<std::size_t>(j)]);
          table[row * 2 * half + j] = static_cast<T>(std::cos(static_cast<double>(angle)) * args.scale);
          table[row * 2 * half + half + j] = static_cast<T>(std::sin(static_cast<double>(angle)) * args.scale);
        }
      }
    });
  });
}

void rope(const RopeArgs& args) {
  const std::int64_t rows = args.x.shape[0], table_rows = args.table.shape[0], d = args.table.shape[1], half = d / 2;
  const std::int64_t stride = row_stride(args.x, args.stride);
  const std::int32_t* positions = args.positions ? args.positions.as<std::int32_t>() : nullptr;
  dispatch_dtype(args.x.dtype, [&]<class T>(T) {
    T* const x = args.x.as<T>();
    const Acc<T>* const table = args.table.as<Acc<T>>();
    const auto rotate = args.pairs == RotaryPairs::rotate_half ? rope<T>().rotate : rope<T>().rotate_interleaved;
    const typename Rope<T>::Heads heads{args.x.shape[1] / args.head_dim, args.head_dim, half};
    const Acc<T> sign = args.rotation == Rotation::forward ? 1 : -1;
    parallel_ranges(rows, 8, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t row = begin; row < end; ++row) {
        const Acc<T>* const turn = table + (positions ? positions[row] : row % table_rows) * d;
        rotate(x + row * stride, turn, turn + half, heads, sign);
      }
    });
  });
}

}  // namespace tessera::kernels::host
