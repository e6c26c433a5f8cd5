// SPDX-License-Identifier: Apache-2.0
#include "runtime/base/rng.hpp"

#include <cmath>

namespace tessera {

std::array<std::uint32_t, 4> philox(std::uint64_t key, std::uint64_t counter_low, std::uint64_t counter_high) {
  auto c0 = static_cast<std::uint32_t>(counter_low), c1 = static_cast<std::uint32_t>(counter_low >> 32);
  auto c2 = static_cast<std::uint32_t>(counter_high), c3 = static_cast<std::uint32_t>(counter_high >> 32);
  auto k0 = static_cast<std::uint32_t>(key), k1 = static_cast<std::uint32_t>(key >> 32);
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t p0 = std::uint64_t{0xD2511F53} * c0, p1 = std::uint64_t{0xCD9E8D57} * c2;
    const auto n0 = static_cast<std::uint32_t>(p1 >> 32) ^ c1 ^ k0, n2 = static_cast<std::uint32_t>(p0 >> 32) ^ c3 ^ k1;
    c1 = static_cast<std::uint32_t>(p1);
    c3 = static_cast<std::uint32_t>(p0);
    c0 = n0;
    c2 = n2;
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  return {c0, c1, c2, c3};
}

static double to_unit(std::uint32_t high, std::uint32_t low) {
  return static_cast<double>((static_cast<std::uint64_t>(high) << 32 | low) >> 11) * 0x1p-53;
}

double uniform(std::uint64_t key, std::uint64_t index) {
  const auto r = philox(key, index);
  return to_unit(r[0], r[1]);
}

double normal(std::uint64_t key, std::uint64_t index) {
  const auto r = philox(key, index >> 1);
  const double u = 1.0 - to_unit(r[0], r[1]);  // (0, 1]
  const double angle = 6.283185307179586476925 * to_unit(r[2], r[3]);
  return std::sqrt(-2.0 * std::log(u)) * ((index & 1) ? std::sin(angle) : std::cos(angle));
}

std::uint64_t permute(std::uint64_t key, std::uint64_t n, std::uint64_t index) {
  if (n <= 1) return 0;
  int bits = 1;
  while (bits < 63 && (std::uint64_t{1} << bits) < n) ++bits;
  const int low_bits = bits / 2, high_bits = bits - low_bits;
  const std::uint64_t low_mask = (std::uint64_t{1} << low_bits) - 1, high_mask = (std::uint64_t{1} << high_bits) - 1;
  do {  // cycle walking: repeat until the value is below n
    std::uint64_t low = index & low_mask, high = index >> low_bits;
    for (std::uint64_t round = 0; round < 6; round += 2) {
      high = (high ^ philox(key, low, round)[0]) & high_mask;
      if (low_bits > 0) low = (low ^ philox(key, high, round + 1)[0]) & low_mask;
    }
    index = high << low_bits | low;
  } while (index >= n);
  return index;
}

}  // namespace tessera
