// SPDX-License-Identifier: Apache-2.0
#pragma once
// Element types of tensors, in memory and in files.

#include <cstddef>
#include <cstdint>

#include "runtime/base/error.hpp"
#include "runtime/base/half.hpp"

namespace tessera {

enum class DType : std::uint8_t { f32, f64, bf16, f16, i32, i64, u8 };

/// Bytes of one element.
[[nodiscard]] constexpr std::size_t size_of(DType dtype) {
  switch (dtype) {
    case DType::f32: return 4;
    case DType::f64: return 8;
    case DType::bf16: return 2;
    case DType::f16: return 2;
    case DType::i32: return 4;
    case DType::i64: return 8;
    case DType::u8: return 1;
  }
  return 0;
}

/// "fp32", "bf16", …, as on the command line.
[[nodiscard]] constexpr const char* name_of(DType dtype) {
  switch (dtype) {
    case DType::f32: return "fp32";
    case DType::f64: return "fp64";
    case DType::bf16: return "bf16";
    case DType::f16: return "fp16";
    case DType::i32: return "int32";
    case DType::i64: return "int64";
    case DType::u8: return "uint8";
  }
  return "?";
}

[[nodiscard]] constexpr bool is_float(DType dtype) {
  return dtype == DType::f32 || dtype == DType::f64 || dtype == DType::bf16 || dtype == DType::f16;
}

/// Type of statistics (mean, rstd, lse, router probabilities) and losses, given the type of activations.
[[nodiscard]] constexpr DType stat_dtype(DType dtype) { return dtype == DType::f64 ? DType::f64 : DType::f32; }

template <class T>
struct dtype_of;
template <>
struct dtype_of<float> {
  static constexpr DType value = DType::f32;
};
template <>
struct dtype_of<double> {
  static constexpr DType value = DType::f64;
};
template <>
struct dtype_of<bf16> {
  static constexpr DType value = DType::bf16;
};
template <>
struct dtype_of<f16> {
  static constexpr DType value = DType::f16;
};
template <>
struct dtype_of<std::int32_t> {
  static constexpr DType value = DType::i32;
};
template <>
struct dtype_of<std::int64_t> {
  static constexpr DType value = DType::i64;
};
template <>
struct dtype_of<std::uint8_t> {
  static constexpr DType value = DType::u8;
};

}  // namespace tessera
