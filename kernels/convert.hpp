// SPDX-License-Identifier: Apache-2.0
#pragma once
// Casts between fp32 and the 16-bit floats: exact to fp32, rounded to nearest even from it (runtime/base/half.hpp
// defines NaN, infinity and subnormal numbers). The same bits on every instruction set.

#include <cstddef>

#include "runtime/base/stream.hpp"
#include "runtime/base/tensor.hpp"

namespace tessera::kernels {

struct ConvertArgs {
  TensorView from;  // fp32 to bf16 or f16, or back
  TensorView to;    // as many elements; does not overlap `from`
};
/// On this rank's threads.
void convert(const ConvertArgs& args, StreamView stream);
/// The same on the calling thread alone.
void convert_serial(const ConvertArgs& args, StreamView stream);

/// Elements of files: neither pointer need be aligned, and they do not overlap.
struct ConvertBytesArgs {
  const std::byte* from = nullptr;
  DType source = DType::f32;  // f32, f64, bf16 or f16
  std::byte* to = nullptr;
  DType target = DType::f32;  // f32, bf16 or f16; or any type, if it is the source's
  std::int64_t count = 0;
};
/// Rounds once, to nearest even. Infinities, NaNs (the upper bits of their payload) and signed zeros stay what they
/// are: bits that come from a narrower type go back to it unchanged. Returns `count`, or the index of the first finite
/// element that the target cannot hold; that one and later ones are not written. On the calling thread alone.
[[nodiscard]] std::int64_t convert_bytes(const ConvertBytesArgs& args);

}  // namespace tessera::kernels
