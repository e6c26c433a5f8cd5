// SPDX-License-Identifier: Apache-2.0
#pragma once
// 64-bit FNV-1a: for keys and fingerprints, not for security.

#include <cstdint>
#include <string_view>

namespace tessera {

inline constexpr std::uint64_t fnv_offset_basis = 14695981039346656037ull;

/// Hash of `text`; pass the result as `seed` to go on with what follows.
[[nodiscard]] constexpr std::uint64_t hash64(std::string_view text, std::uint64_t seed = fnv_offset_basis) {
  for (const char c : text) seed = (seed ^ static_cast<unsigned char>(c)) * 1099511628211ull;
  return seed;
}

/// The eight bytes of `value`, lowest first.
[[nodiscard]] constexpr std::uint64_t hash64(std::uint64_t value, std::uint64_t seed) {
  for (int shift = 0; shift < 64; shift += 8) seed = (seed ^ ((value >> shift) & 0xff)) * 1099511628211ull;
  return seed;
}

}  // namespace tessera
