// SPDX-License-Identifier: Apache-2.0
// Dequantization on a device: eight elements a thread.
#include "kernels/cuda/ops.hpp"
#include "kernels/cuda/vector.cuh"
#include "kernels/dequantize.hpp"
#include "kernels/dynamic_code.hpp"
#include "kernels/quantized_codes.hpp"

namespace tessera::kernels::cuda {
namespace {

struct CodeTables {
  float four_bit[2][16] = {};  // nf4, fp4
  DynamicCode dynamic = signed_dynamic_code;
};
constexpr CodeTables make_code_tables() {
  CodeTables tables;
  for (int i = 0; i < 16; ++i) tables.four_bit[0][i] = nf4_values[i], tables.four_bit[1][i] = fp4_values[i];
  return tables;
}
__device__ const CodeTables code_tables = make_code_tables();

template <class T>
struct FourBit {
  const unsigned char* bytes;
  std::int64_t absmax_at, scales_at, offset_at;
  int table;
  bool nested;
  T* out;

  __device__ float scale_of(std::int64_t block) const {
    const auto* scales = reinterpret_cast<const float*>(bytes + scales_at);
    if (!nested) return scales[block];
    const float mean = *reinterpret_cast<const float*>(bytes + offset_at);
    return add(mul(code_tables.dynamic.values[bytes[absmax_at + block]], scales[block / QuantizedMatrix::nested_block]),
               mean);
  }
  /// Eight elements from a multiple of eight on are of one block.
  template <int N>
  __device__ void run(std::int64_t first) const {
    const float absmax = scale_of(first / QuantizedMatrix::block);
    float v[N];
#pragma unroll
    for (int i = 0; i < N; ++i) {
      const unsigned pair = bytes[(first + i) / 2];
      v[i] = mul(code_tables.four_bit[table][(first + i) % 2 == 0 ? pair >> 4 : pair & 15U], absmax);
    }
    store<N>(out + first, v);
  }
};

template <class T>
struct Int8 {
  const signed char* codes;
  const float* absmax;
  std::int64_t columns;
  T* out;

  template <int N>
  __device__ void run(std::int64_t first) const {
    float v[N];
#pragma unroll
    for (int i = 0; i < N; ++i) {
      const float code = static_cast<float>(codes[first + i]);
      v[i] = mul(mul(code, absmax[(first + i) / columns]), int8_step);
    }
    store<N>(out + first, v);
  }
};

}  // namespace

void dequantize(const DequantizeArgs& args, StreamView stream) {
  const QuantizedMatrix& matrix = args.matrix;
  const auto* const bytes = data_of<unsigned char>(args.bytes);
  dispatch_dtype(args.out.dtype, [&]<class T>(T) {
    if (is_4bit(matrix.format))
      return for_each<8>(FourBit<T>{bytes, matrix.absmax_at(), matrix.scales_at(), matrix.offset_at(),
                                    is_fp4(matrix.format) ? 1 : 0, is_nested(matrix.format), data_of<T>(args.out)},
                         matrix.numel(), {args.out.data}, stream, "dequantize");
    for_each<8>(
        Int8<T>{reinterpret_cast<const signed char*>(bytes), reinterpret_cast<const float*>(bytes + matrix.scales_at()),
                matrix.columns, data_of<T>(args.out)},
        matrix.numel(), {args.out.data}, stream, "dequantize");
  });
}

}  // namespace tessera::kernels::cuda
