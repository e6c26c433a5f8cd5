// Rotary positions: the table by the C library's cosine and sine, the rotation by host/isa.
#include "kernels/rope.hpp"

#include <cmath>

#include "kernels/cuda/ops.hpp"
#include "kernels/host/parallel.hpp"
#include "kernels/host/rope.hpp"

namespace tessera::kernels {

void rope_table(const RopeTableArgs& args, StreamView stream) {
  const auto half = static_cast<std::int64_t>(args.inv_freq.size());
  TESSERA_ASSERT(args.table.shape.rank() == 2 && args.table.shape[1] == 2 * half, "table %s",
                 args.table.shape.str().c_str());
  TESSERA_ASSERT(!args.positions || args.positions.numel() == args.table.shape[0]);
  if constexpr (cuda_built)
    if (is_on_cuda(args.table)) return cuda::rope_table(args, stream);
  host::dispatch_float(args.table.dtype, [&](auto zero) {
    using T = decltype(zero);
    T* const table = args.table.as<T>();
    const std::int32_t* positions = args.positions ? args.positions.as<std::int32_t>() : nullptr;
    host::parallel_ranges(args.table.shape[0], 4, [&](std::int64_t begin, std::int64_t end) {
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

void rope(const RopeArgs& args, StreamView stream) {
  const std::int64_t d = args.head_dim, half = d / 2;
  TESSERA_ASSERT(d > 0 && d % 2 == 0 && args.x.shape.rank() == 2 && args.x.shape[1] % d == 0 &&
                     args.table.shape.rank() == 2 && args.table.shape[1] == d &&
                     args.table.dtype == stat_dtype(args.x.dtype),
                 "x %s, table %s, heads of %lld", args.x.shape.str().c_str(), args.table.shape.str().c_str(),
                 static_cast<long long>(d));
  const std::int64_t rows = args.x.shape[0], heads = args.x.shape[1] / d, places = args.table.shape[0];
  const std::int64_t stride = args.stride > 0 ? args.stride : args.x.shape[1];
  TESSERA_ASSERT(places > 0 && (!args.positions || args.positions.numel() == rows));
  const std::int32_t* positions = args.positions ? args.positions.as<std::int32_t>() : nullptr;
  if constexpr (cuda_built)
    if (is_on_cuda(args.x)) return cuda::rope(args, stream);
  host::dispatch_dtype(args.x.dtype, [&](auto zero) {
    using T = decltype(zero);
    T* const x = args.x.as<T>();
    const Acc<T>* const table = args.table.as<Acc<T>>();
    const auto& kernel = host::rope<T>();
    const Acc<T> sign = args.rotation == Rotation::forward ? 1 : -1;
    host::parallel_ranges(rows, 8, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t row = begin; row < end; ++row) {
        const Acc<T>* const turn = table + (positions ? positions[row] : row % places) * d;
        kernel.rotate(x + row * stride, turn, turn + half, heads, half, sign);
      }
    });
  });
}

}  // namespace tessera::kernels
