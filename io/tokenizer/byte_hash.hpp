// SPDX-License-Identifier: Apache-2.0
#pragma once
// A fast hash of bytes for tables and caches; not for security, and different on big-endian machines.

#include <cstdint>
#include <cstring>
#include <string_view>

namespace tessera::io {

[[nodiscard]] inline std::uint64_t mix(std::uint64_t a, std::uint64_t b) {
  __extension__ using Wide = unsigned __int128;
  const Wide product = static_cast<Wide>(a ^ 0x9E3779B97F4A7C15ull) * (b ^ 0xD1B54A32D192ED03ull);
  return static_cast<std::uint64_t>(product) ^ static_cast<std::uint64_t>(product >> 64);
}

/// Reads eight bytes at a time; the length is part of the hash.
[[nodiscard]] inline std::uint64_t hash_bytes(std::string_view bytes, std::uint64_t seed = 0) {
  std::uint64_t hash = mix(seed, bytes.size());
  std::uint64_t word = 0;
  for (; bytes.size() >= 8; bytes.remove_prefix(8)) {
    std::memcpy(&word, bytes.data(), 8);
    hash = mix(hash, word);
  }
  word = 0;
  if (!bytes.empty()) std::memcpy(&word, bytes.data(), bytes.size());
  return mix(hash, word);
}

}  // namespace tessera::io
