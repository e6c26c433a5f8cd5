// SPDX-License-Identifier: Apache-2.0
// CRC32C: known values, equality of both implementations, and joining.
#include "io/file/crc32c.hpp"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "runtime/base/rng.hpp"

namespace tessera::io {
namespace {

std::span<const std::byte> bytes_of(const std::string& text) { return std::as_bytes(std::span(text)); }

TEST(Crc32c, HasTheKnownValues) {  // RFC 3720, B.4
  EXPECT_EQ(crc32c(0, bytes_of("123456789")), 0xe3069283u);
  EXPECT_EQ(crc32c(0, bytes_of(std::string(32, '\0'))), 0x8a9136aau);
  EXPECT_EQ(crc32c(0, bytes_of(std::string(32, '\xff'))), 0x62a8ab43u);
  EXPECT_EQ(crc32c(0, {}), 0u);
}

TEST(Crc32c, InstructionAndTablesAgreeAndRangesJoin) {
  std::string text(500'000, '\0');
  for (std::size_t i = 0; i < text.size(); ++i) text[i] = static_cast<char>(hash64("crc", i));
  for (const std::size_t n :
       {0u, 1u, 7u, 8u, 9u, 3071u, 3072u, 3073u, 100'000u, 196'607u, 196'608u, 196'609u, 500'000u}) {
    const auto all = bytes_of(text).first(n);
    const std::uint32_t expected = crc32c(0, all);
    EXPECT_EQ(expected, crc32c_by_table(0, all)) << n;
    for (const std::size_t cut : {std::size_t{0}, n / 3, n / 2, n}) {
      const std::uint32_t first = crc32c(0, all.first(cut)), second = crc32c(0, all.subspan(cut));
      EXPECT_EQ(crc32c(first, all.subspan(cut)), expected);
      EXPECT_EQ(crc32c_combine(first, second, n - cut), expected) << n << " cut at " << cut;
    }
  }
}

}  // namespace
}  // namespace tessera::io
