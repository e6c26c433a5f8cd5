// Mostly arithmetic on bits, so that a NaN keeps its payload.
#include "io/convert/cast.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "io/model/safetensors.hpp"

namespace tessera::io {

bool is_float(DType dtype) {
  return dtype == DType::f32 || dtype == DType::f64 || dtype == DType::bf16 || dtype == DType::f16;
}

std::uint16_t bf16_of_float(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
  const bool nan = (bits & 0x7fffffffu) > 0x7f800000u;
  // A NaN whose upper bits are none would become an infinity: it gets the quiet bit.
  const std::uint32_t kept = (bits >> 16) | ((bits & 0x007f0000u) == 0 ? 0x40u : 0u);
  return static_cast<std::uint16_t>(nan ? kept : rounded);
}

std::uint16_t f16_of_float(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t sign = (bits >> 16) & 0x8000u, magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) {
    const std::uint32_t payload = (magnitude >> 13) & 0x3ffu;
    return static_cast<std::uint16_t>(sign | 0x7c00u | (payload == 0 ? 0x200u : payload));
  }
  if (magnitude >= 0x47800000u) return static_cast<std::uint16_t>(sign | 0x7c00u);  // 2^16 and above
  if (magnitude >= 0x38800000u) {                                                   // 2^-14: normal
    const std::uint32_t rebased = magnitude - (112u << 23);
    return static_cast<std::uint16_t>(sign | ((rebased + 0xfffu + ((rebased >> 13) & 1u)) >> 13));
  }
  // Multiples of 2^-24: adding 1/2, whose unit in the last place that is, rounds to them.
  const float scaled = std::bit_cast<float>(magnitude) + 0.5F;
  return static_cast<std::uint16_t>(sign | (std::bit_cast<std::uint32_t>(scaled) - 0x3f000000u));
}

float odd_float_of_double(double value) {
  const auto nearest = static_cast<float>(value);
  const auto bits = std::bit_cast<std::uint32_t>(nearest);
  if (static_cast<double>(nearest) == value || std::isnan(value) || (bits & 1u) != 0) return nearest;
  // Even and not exact: the odd neighbour on the other side of the value.
  const bool above = std::abs(static_cast<double>(nearest)) > std::abs(value);
  return std::bit_cast<float>(above ? bits - 1 : bits + 1);
}

namespace {

struct ToBf16 {
  using Bits = std::uint16_t;
  static std::uint16_t narrow(float v) { return bf16_of_float(v); }
  static bool infinite(std::uint16_t v) { return (v & 0x7fffu) == 0x7f80u; }
};
struct ToF16 {
  using Bits = std::uint16_t;
  static std::uint16_t narrow(float v) { return f16_of_float(v); }
  static bool infinite(std::uint16_t v) { return (v & 0x7fffu) == 0x7c00u; }
};
struct ToF32 {
  using Bits = float;
  static float narrow(float v) { return v; }
  static bool infinite(float v) { return std::isinf(v); }
};
struct FromF32 {
  using Bits = float;
  static float widen(float v) { return v; }
  static bool infinite(float v) { return std::isinf(v); }
};
struct FromBf16 {
  using Bits = std::uint16_t;
  static float widen(std::uint16_t v) { return std::bit_cast<float>(static_cast<std::uint32_t>(v) << 16); }
  static bool infinite(std::uint16_t v) { return ToBf16::infinite(v); }
};
struct FromF16 {
  using Bits = std::uint16_t;
  static float widen(std::uint16_t v) { return float_of_f16(v); }
  static bool infinite(std::uint16_t v) { return ToF16::infinite(v); }
};
/// For a target of 16 bits.
struct FromF64Odd {
  using Bits = double;
  static float widen(double v) { return odd_float_of_double(v); }
  static bool infinite(double v) { return std::isinf(v); }
};
/// Rounds once by itself.
struct FromF64 {
  using Bits = double;
  static float widen(double v) { return static_cast<float>(v); }
  static bool infinite(double v) { return std::isinf(v); }
};

/// In chunks of a fixed length, so that the inner loop is made of vectors; where one has an infinity, its cause is
/// looked for.
template <class From, class To>
std::int64_t run(const std::byte* from, std::byte* to, std::int64_t count) {
  constexpr std::int64_t chunk = 64;
  constexpr auto in = static_cast<std::int64_t>(sizeof(typename From::Bits)),
                 out = static_cast<std::int64_t>(sizeof(typename To::Bits));
  for (std::int64_t done = 0; done < count; done += chunk) {
    const std::int64_t n = std::min(chunk, count - done);
    typename From::Bits source[chunk] = {};
    typename To::Bits target[chunk];
    std::memcpy(source, from + done * in, static_cast<std::size_t>(n * in));
    unsigned infinite = 0;
    for (std::int64_t i = 0; i < chunk; ++i) {
      target[i] = To::narrow(From::widen(source[i]));
      infinite |= static_cast<unsigned>(To::infinite(target[i]));
    }
    std::int64_t good = n;
    for (std::int64_t i = 0; infinite != 0 && i < good; ++i)
      if (To::infinite(target[i]) && !From::infinite(source[i])) good = i;
    std::memcpy(to + done * out, target, static_cast<std::size_t>(good * out));
    if (good < n) return done + good;
  }
  return count;
}

template <class From>
std::int64_t run_to(const std::byte* from, std::byte* to, DType target, std::int64_t count) {
  switch (target) {
    case DType::bf16: return run<From, ToBf16>(from, to, count);
    case DType::f16: return run<From, ToF16>(from, to, count);
    default: return run<From, ToF32>(from, to, count);
  }
}

}  // namespace

std::int64_t cast(const std::byte* from, DType source, std::byte* to, DType target, std::int64_t count) {
  if (source == target) {
    std::memcpy(to, from, static_cast<std::size_t>(count) * size_of(source));
    return count;
  }
  TESSERA_ASSERT(is_float(source) && is_float(target) && target != DType::f64, "%s to %s", name_of(source),
                 name_of(target));
  switch (source) {
    case DType::bf16: return run_to<FromBf16>(from, to, target, count);
    case DType::f16: return run_to<FromF16>(from, to, target, count);
    case DType::f64:
      return target == DType::f32 ? run<FromF64, ToF32>(from, to, count) : run_to<FromF64Odd>(from, to, target, count);
    default: return run_to<FromF32>(from, to, target, count);
  }
}

}  // namespace tessera::io
