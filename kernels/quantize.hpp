// SPDX-License-Identifier: Apache-2.0
#pragma once
// A matrix in floats to its quantized bytes (runtime/base/quantized.hpp), in the rounding of bitsandbytes' portable
// functions. Streamed: of the matrix, a piece of at most 1 MiB is in memory, and its absmax. On the calling thread.

#include <cstddef>
#include <functional>
#include <span>
#include <vector>

#include "runtime/base/quantized.hpp"

namespace tessera::kernels {

/// Elements [first, first + count) of the matrix, row-major, as fp32.
using ReadElements = std::function<void(std::int64_t first, std::int64_t count, float* to)>;

/// The values of the 16 codes of nf4 or fp4, and of the 256 codes of the 8-bit absmax (bitsandbytes' dynamic code).
[[nodiscard]] std::span<const float> four_bit_code(QuantFormat format);
[[nodiscard]] std::span<const float> absmax_code();

class Quantizer {
 public:
  /// `read` is called by read(); it must outlive the quantizer's use.
  Quantizer(const QuantizedMatrix& matrix, ReadElements read);

  /// Bytes [first, first + to.size()) of the quantized matrix. For codes, reads the elements of their blocks or rows;
  /// for any byte after the codes (absmax of any format, the mean of double quantization) the whole matrix, once. int8
  /// rounds elements to fp16 first, as bitsandbytes does. Throws Error (data) with the index of a range that has an
  /// element which is not finite, or too large for fp16.
  void read(std::int64_t first, std::span<std::byte> to);
  /// Double quantization: the mean of the absmax that is subtracted before these are quantized, in place of the exact
  /// mean rounded to fp32. Before read().
  void set_mean(float mean);

 private:
  void measure(std::int64_t first_group, std::int64_t end_group);
  void load(std::int64_t first, std::int64_t count);
  void make_statistics();
  void code_elements(std::int64_t first, std::int64_t count, std::byte* to);

  QuantizedMatrix matrix_;
  ReadElements read_;
  std::vector<float> elements_;
  std::vector<float> absmax_;          // by group; below 0: not measured
  std::vector<std::byte> statistics_;  // the bytes after the codes; empty: not made
  bool has_mean_ = false;
  float mean_ = 0;
};

}  // namespace tessera::kernels
