// SPDX-License-Identifier: Apache-2.0
// Dequantization over this rank's threads.
#include "kernels/dequantize.hpp"

#include <algorithm>
#include <cstring>

#include "kernels/dynamic_code.hpp"
#include "kernels/host/dequantize.hpp"
#include "kernels/host/ops.hpp"
#include "kernels/host/parallel.hpp"
#include "kernels/quantized_codes.hpp"

namespace tessera::kernels::host {
namespace {

constexpr std::int64_t group_elements = QuantizedMatrix::block * QuantizedMatrix::nested_block;

/// Elements [begin, end), which begin with a block of absmax.
template <class T>
void four_bit_range(const QuantizedMatrix& matrix, const std::uint8_t* bytes, T* out, std::int64_t begin,
                    std::int64_t end) {
  const float* const values = is_fp4(matrix.format) ? fp4_values : nf4_values;
  const auto* const scales = reinterpret_cast<const float*>(bytes + matrix.scales_at());
  if (!is_nested(matrix.format))
    return dequantize<T>().four_bit(values, bytes + begin / 2, scales + begin / QuantizedMatrix::block, out + begin,
                                    end - begin);
  float mean = 0;
  std::memcpy(&mean, bytes + matrix.offset_at(), sizeof mean);
  for (std::int64_t at = begin; at < end; at += group_elements) {
    const std::int64_t n = std::min(group_elements, end - at), first = at / QuantizedMatrix::block;
    const std::uint8_t* const codes = bytes + matrix.absmax_at() + first;
    const float scale = scales[at / group_elements];
    float absmax[QuantizedMatrix::nested_block];
    for (std::int64_t b = 0; b * QuantizedMatrix::block < n; ++b)
      absmax[b] = signed_dynamic_code.values[codes[b]] * scale + mean;
    dequantize<T>().four_bit(values, bytes + at / 2, absmax, out + at, n);
  }
}

}  // namespace

void dequantize(const DequantizeArgs& args) {
  const QuantizedMatrix& matrix = args.matrix;
  const auto* const bytes = args.bytes.as<std::uint8_t>();
  dispatch_dtype(args.out.dtype, [&]<class T>(T) {
    T* const out = args.out.as<T>();
    if (is_4bit(matrix.format))
      return parallel_ranges(matrix.numel(), group_elements, [&](std::int64_t begin, std::int64_t end) {
        four_bit_range(matrix, bytes, out, begin, end);
      });
    const auto* const absmax = reinterpret_cast<const float*>(bytes + matrix.scales_at());
    parallel_ranges(matrix.rows, 1, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t row = begin; row < end; ++row) {
        const std::int64_t at = row * matrix.columns;
        dequantize<T>().int8(reinterpret_cast<const std::int8_t*>(bytes) + at, absmax[row], out + at, matrix.columns);
      }
    });
  });
}

}  // namespace tessera::kernels::host
