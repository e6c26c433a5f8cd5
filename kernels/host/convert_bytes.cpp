// SPDX-License-Identifier: Apache-2.0
// Casts of the bytes of files: converts block by block with the instruction set's kernels, then corrects the NaNs,
// which the kernels make quiet, and looks for overflow.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <type_traits>

#include "kernels/convert.hpp"
#include "kernels/host/convert.hpp"

namespace tessera::kernels {
namespace {

/// To fp32 by "round to odd": rounding that to 16 bits gives what rounding `value` once would (Boldo, Melquiond 2008).
float round_to_odd(double value) {
  const auto nearest = static_cast<float>(value);
  const auto bits = std::bit_cast<std::uint32_t>(nearest);
  if (static_cast<double>(nearest) == value || std::isnan(value) || (bits & 1u) != 0) return nearest;
  const bool above = std::abs(static_cast<double>(nearest)) > std::abs(value);
  return std::bit_cast<float>(above ? bits - 1 : bits + 1);
}

template <class T>
constexpr int mantissa_bits = std::is_same_v<T, bf16>  ? 7
                              : std::is_same_v<T, f16> ? 10
                                                       : 23;

template <class T>
std::uint32_t bits_of(T x) {
  if constexpr (is_half<T>) return x.bits;
  else return std::bit_cast<std::uint32_t>(static_cast<float>(x));
}

/// True for infinities and NaNs.
template <class T>
bool has_top_exponent(T x) {
  constexpr std::uint32_t mask = (is_half<T> ? 0x7fffu : 0x7fffffffu) >> mantissa_bits<T> << mantissa_bits<T>;
  return (bits_of(x) & mask) == mask;
}

/// A NaN or an infinity as To: the upper bits of the payload stay as they are; a NaN that has none of them gets the
/// quiet bit.
template <class To, class From>
To special(From x) {
  constexpr int from = mantissa_bits<From>, to = mantissa_bits<To>;
  const std::uint32_t bits = bits_of(x), payload = bits & ((1u << from) - 1);
  std::uint32_t kept = from > to ? payload >> (from - to) : payload << (to - from);
  if (payload != 0 && kept == 0) kept = 1u << (to - 1);
  const std::uint32_t sign = bits >> (is_half<From> ? 15 : 31);
  constexpr std::uint32_t exponent = is_half<To> ? 0x7fffu >> to << to : 0x7f800000u;
  const std::uint32_t made = sign << (is_half<To> ? 15 : 31) | exponent | kept;
  if constexpr (is_half<To>) return std::bit_cast<To>(static_cast<std::uint16_t>(made));
  else return std::bit_cast<To>(made);
}

template <class From, class To>
std::int64_t run(const ConvertBytesArgs& args) {
  constexpr std::int64_t block = 512;
  const auto& table = host::convert();
  for (std::int64_t done = 0; done < args.count; done += block) {
    const std::int64_t n = std::min(block, args.count - done);
    From source[block];
    float wide[block];
    To target[block];
    std::memcpy(source, args.from + done * static_cast<std::int64_t>(sizeof(From)),
                static_cast<std::size_t>(n) * sizeof(From));
    if constexpr (is_half<From>) table.widen(source, wide, n);
    else if constexpr (std::is_same_v<From, double> && is_half<To>)
      std::transform(source, source + n, wide, round_to_odd);
    else std::transform(source, source + n, wide, [](From x) { return static_cast<float>(x); });
    if constexpr (is_half<To>) table.narrow(wide, target, n);
    else std::copy_n(wide, n, target);
    bool any = false;
    for (std::int64_t i = 0; i < n; ++i) any |= has_top_exponent(target[i]);
    std::int64_t good = n;
    for (std::int64_t i = 0; any && i < good; ++i) {
      if (!has_top_exponent(target[i])) continue;
      const bool finite =
          std::is_same_v<From, double> ? std::isfinite(static_cast<double>(source[i])) : !has_top_exponent(source[i]);
      if (finite) good = i;
      else target[i] = special<To>(source[i]);
    }
    std::memcpy(args.to + done * static_cast<std::int64_t>(sizeof(To)), target,
                static_cast<std::size_t>(good) * sizeof(To));
    if (good < n) return done + good;
  }
  return args.count;
}

template <class From>
std::int64_t run_to(const ConvertBytesArgs& args) {
  switch (args.target) {
    case DType::bf16: return run<From, bf16>(args);
    case DType::f16: return run<From, f16>(args);
    default: return run<From, float>(args);
  }
}

}  // namespace

std::int64_t convert_bytes(const ConvertBytesArgs& args) {
  if (args.source == args.target) {
    std::memcpy(args.to, args.from, static_cast<std::size_t>(args.count) * size_of(args.source));
    return args.count;
  }
  TESSERA_ASSERT(is_float(args.source) && is_float(args.target) && args.target != DType::f64, "%s to %s",
                 name_of(args.source), name_of(args.target));
  switch (args.source) {
    case DType::bf16: return run_to<bf16>(args);
    case DType::f16: return run_to<f16>(args);
    case DType::f64: return run_to<double>(args);
    default: return run_to<float>(args);
  }
}

}  // namespace tessera::kernels
