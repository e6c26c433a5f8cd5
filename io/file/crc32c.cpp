// SPDX-License-Identifier: Apache-2.0
// Three streams keep the crc32 instruction busy (latency 3, one a cycle); they are joined by "append zeros"
// operators, as zlib's crc32_combine does (M. Adler): appending n zero bytes is a linear map over GF(2), and n's
// bits choose which squares to apply.
#include "io/file/crc32c.hpp"

#include <array>
#include <cstring>

namespace tessera::io {

namespace {

constexpr std::uint32_t polynomial = 0x82f63b78;  // reflected

using Matrix = std::array<std::uint32_t, 32>;  // column i: the image of bit i

constexpr std::uint32_t times(const Matrix& m, std::uint32_t v) {
  std::uint32_t sum = 0;
  for (int i = 0; v != 0; v >>= 1, ++i)
    if (v & 1) sum ^= m[static_cast<std::size_t>(i)];
  return sum;
}

constexpr Matrix square(const Matrix& m) {
  Matrix out{};
  for (std::size_t i = 0; i < 32; ++i) out[i] = times(m, m[i]);
  return out;
}

/// zeros[k]: appends 2^k zero bytes.
constexpr std::array<Matrix, 64> make_zeros() {
  Matrix bit{};  // appends one zero bit
  bit[0] = polynomial;
  for (std::size_t i = 1; i < 32; ++i) bit[i] = 1u << (i - 1);
  std::array<Matrix, 64> out{};
  out[0] = square(square(square(bit)));
  for (std::size_t k = 1; k < 64; ++k) out[k] = square(out[k - 1]);
  return out;
}
const std::array<Matrix, 64>& zeros() {
  static const std::array<Matrix, 64> table = make_zeros();
  return table;
}

std::uint32_t append_zeros(std::uint32_t crc, std::uint64_t bytes) {
  for (std::size_t k = 0; bytes != 0; bytes >>= 1, ++k)
    if (bytes & 1) crc = times(zeros()[k], crc);
  return crc;
}

using Tables = std::array<std::array<std::uint32_t, 256>, 8>;

/// t[k][b]: byte b followed by k zero bytes.
Tables make_tables() {
  Tables t{};
  for (std::uint32_t b = 0; b < 256; ++b) {
    std::uint32_t crc = b;
    for (int i = 0; i < 8; ++i) crc = (crc >> 1) ^ ((crc & 1) ? polynomial : 0);
    t[0][b] = crc;
  }
  for (std::size_t k = 1; k < 8; ++k)
    for (std::size_t b = 0; b < 256; ++b) t[k][b] = (t[k - 1][b] >> 8) ^ t[0][t[k - 1][b] & 255];
  return t;
}

std::uint64_t load(const std::byte* p) {
  std::uint64_t word;
  std::memcpy(&word, p, sizeof word);
  return word;
}

/// On the inverted register.
std::uint32_t run_table(std::uint32_t crc, const std::byte* p, std::size_t n) {
  static const Tables t = make_tables();
  for (; n >= 8; p += 8, n -= 8) {
    const std::uint64_t w = load(p) ^ crc;
    crc = t[7][w & 255] ^ t[6][w >> 8 & 255] ^ t[5][w >> 16 & 255] ^ t[4][w >> 24 & 255] ^ t[3][w >> 32 & 255] ^
          t[2][w >> 40 & 255] ^ t[1][w >> 48 & 255] ^ t[0][w >> 56];
  }
  for (; n > 0; ++p, --n) crc = (crc >> 8) ^ t[0][(crc ^ static_cast<std::uint32_t>(*p)) & 255];
  return crc;
}

#if defined(__x86_64__)

/// The operator of `lane` zero bytes as four tables of a byte each.
template <std::size_t lane>
std::uint32_t shifted(std::uint64_t v) {
  static const auto t = [] {
    std::array<std::array<std::uint32_t, 256>, 4> out{};
    for (std::size_t k = 0; k < 4; ++k)
      for (std::uint32_t b = 0; b < 256; ++b) out[k][b] = append_zeros(b << (8 * k), lane);
    return out;
  }();
  return t[0][v & 255] ^ t[1][v >> 8 & 255] ^ t[2][v >> 16 & 255] ^ t[3][v >> 24 & 255];
}

/// As many thirds of `lane` bytes as there are; moves p and n past them.
template <std::size_t lane>
__attribute__((target("sse4.2"))) std::uint64_t run_lanes(std::uint64_t a, const std::byte*& p, std::size_t& n) {
  for (; n >= 3 * lane; p += 3 * lane, n -= 3 * lane) {
    std::uint64_t b = 0, c = 0;
    for (std::size_t i = 0; i < lane; i += 8) {
      a = __builtin_ia32_crc32di(a, load(p + i));
      b = __builtin_ia32_crc32di(b, load(p + lane + i));
      c = __builtin_ia32_crc32di(c, load(p + 2 * lane + i));
    }
    a = shifted<lane>(shifted<lane>(a) ^ b) ^ c;
  }
  return a;
}

__attribute__((target("sse4.2"))) std::uint32_t run_instruction(std::uint32_t crc, const std::byte* p, std::size_t n) {
  // Long lanes from memory: three streams of one page each keep losing the prefetcher (10 GB/s of a core, against 17).
  std::uint64_t a = run_lanes<65536>(crc, p, n);
  a = run_lanes<1024>(a, p, n);
  for (; n >= 8; p += 8, n -= 8) a = __builtin_ia32_crc32di(a, load(p));
  auto rest = static_cast<std::uint32_t>(a);
  for (; n > 0; ++p, --n) rest = __builtin_ia32_crc32qi(rest, static_cast<unsigned char>(*p));
  return rest;
}

bool has_instruction() {
  static const bool has = __builtin_cpu_supports("sse4.2");
  return has;
}

#endif

}  // namespace

std::uint32_t crc32c_by_table(std::uint32_t before, std::span<const std::byte> bytes) {
  return ~run_table(~before, bytes.data(), bytes.size());
}

std::uint32_t crc32c(std::uint32_t before, std::span<const std::byte> bytes) {
#if defined(__x86_64__)
  if (has_instruction()) return ~run_instruction(~before, bytes.data(), bytes.size());
#endif
  return crc32c_by_table(before, bytes);
}

std::uint32_t crc32c_combine(std::uint32_t first, std::uint32_t second, std::uint64_t second_bytes) {
  return append_zeros(first, second_bytes) ^ second;
}

}  // namespace tessera::io
