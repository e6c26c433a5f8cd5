// SPDX-License-Identifier: Apache-2.0
#pragma once
// QuantizedMatrix: the bytes of a frozen matrix that is kept in 4 or 8 bits, as bitsandbytes quantizes it. Everything
// that shards, gathers, saves and loads it sees a vector of bytes; kernels/quantize.hpp makes them and
// kernels/dequantize.hpp reads them.
//
//   nf4, fp4  blocks of 64 elements, in row-major order from the matrix's start. A block's absmax is in 8 bits: blocks
//         of 256 of them have an absmax of their own in fp32, after the mean of all was subtracted (double
//         quantization). Bytes: codes, two elements a byte, the first in the upper half; the 8-bit absmax of each
//         block; padding to a multiple of 4; the fp32 absmax of each 256 of those; the fp32 mean.
//   nf4_single, fp4_single  the same codes without double quantization. Bytes: codes; padding to a multiple of 4; the
//         fp32 absmax of each block.
//   int8  a row's absmax in fp32, as LLM.int8 stores weights (without its outliers). Bytes: codes, one element a byte,
//         signed; padding to a multiple of 4; the absmax of each row.

#include <cstdint>

#include "runtime/base/tensor.hpp"

namespace tessera {

enum class QuantFormat : unsigned char { none, nf4, int8, nf4_single, fp4, fp4_single };
/// All but none.
inline constexpr QuantFormat quant_formats[] = {QuantFormat::nf4, QuantFormat::nf4_single, QuantFormat::fp4,
                                                QuantFormat::fp4_single, QuantFormat::int8};

/// "nf4", "int8", "nf4_single", …
[[nodiscard]] constexpr const char* name_of(QuantFormat format) {
  constexpr const char* names[] = {"none", "nf4", "int8", "nf4_single", "fp4", "fp4_single"};
  return names[static_cast<int>(format)];
}
[[nodiscard]] constexpr bool is_4bit(QuantFormat format) {
  return format != QuantFormat::none && format != QuantFormat::int8;
}
/// Double quantization: absmax in 8 bits.
[[nodiscard]] constexpr bool is_nested(QuantFormat format) {
  return format == QuantFormat::nf4 || format == QuantFormat::fp4;
}
[[nodiscard]] constexpr QuantFormat four_bit_format(bool fp4, bool nested) {
  if (fp4) return nested ? QuantFormat::fp4 : QuantFormat::fp4_single;
  return nested ? QuantFormat::nf4 : QuantFormat::nf4_single;
}
[[nodiscard]] constexpr bool is_fp4(QuantFormat format) {
  return format == QuantFormat::fp4 || format == QuantFormat::fp4_single;
}

struct QuantizedMatrix {
  static constexpr std::int64_t block = 64;          // elements that share an absmax: 4 bits
  static constexpr std::int64_t nested_block = 256;  // 8-bit absmax that share one

  QuantFormat format = QuantFormat::none;
  std::int64_t rows = 0, columns = 0;

  explicit operator bool() const { return format != QuantFormat::none; }
  [[nodiscard]] std::int64_t numel() const { return rows * columns; }
  /// How many elements share the first absmax: a row's, or a block's.
  [[nodiscard]] std::int64_t group() const { return format == QuantFormat::int8 ? columns : block; }
  [[nodiscard]] std::int64_t groups() const { return (numel() + group() - 1) / group(); }
  [[nodiscard]] std::int64_t nested_groups() const { return (groups() + nested_block - 1) / nested_block; }

  // Where the parts begin, in bytes.
  [[nodiscard]] std::int64_t code_bytes() const { return is_4bit(format) ? (numel() + 1) / 2 : numel(); }
  /// Double quantization: the 8-bit absmax, after the codes.
  [[nodiscard]] std::int64_t absmax_at() const { return code_bytes(); }
  /// The fp32 absmax: of blocks of absmax, of blocks, or int8's of rows.
  [[nodiscard]] std::int64_t scales_at() const {
    const std::int64_t end = code_bytes() + (is_nested(format) ? groups() : 0);
    return (end + 3) / 4 * 4;
  }
  /// Double quantization: the mean, after them.
  [[nodiscard]] std::int64_t offset_at() const { return scales_at() + 4 * nested_groups(); }
  [[nodiscard]] std::int64_t bytes() const { return is_nested(format) ? offset_at() + 4 : scales_at() + 4 * groups(); }
  friend bool operator==(const QuantizedMatrix&, const QuantizedMatrix&) = default;
};

}  // namespace tessera
