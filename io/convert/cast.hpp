#pragma once
// Elements from one floating type to another, as bytes of files. Exact where the target is wider,
// else rounded once, to nearest even.

#include <cstddef>
#include <cstdint>

#include "runtime/base/dtype.hpp"

namespace tessera::io {

/// True for f32, f64, bf16, f16: what cast() takes.
[[nodiscard]] bool is_float(DType dtype);

/// To f32, bf16, f16, or to the same type. `count` elements at `from` to `to`, which do not overlap; neither need be
/// aligned. Infinities, NaNs (their upper payload bits) and signed zeros stay what they are; bits that come from a
/// narrower type go back to it unchanged. Returns `count`, or the index of the first finite element that the target
/// cannot hold (it would become infinite); those behind it are then not written.
[[nodiscard]] std::int64_t cast(const std::byte* from, DType source, std::byte* to, DType target, std::int64_t count);

[[nodiscard]] std::uint16_t bf16_of_float(float value);
/// Infinite where `value` is beyond 65504 by half a unit or more.
[[nodiscard]] std::uint16_t f16_of_float(float value);
/// To fp32 by "round to odd": a second rounding, to 16 bits, then gives what a single one would.
[[nodiscard]] float odd_float_of_double(double value);

}  // namespace tessera::io
