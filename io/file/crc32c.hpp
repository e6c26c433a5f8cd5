// SPDX-License-Identifier: Apache-2.0
#pragma once
// CRC32C (Castagnoli, RFC 3720 appendix B.4), the checksum of checkpoints: by the CPU's instruction if it has one, else
// by tables.

#include <cstddef>
#include <cstdint>
#include <span>

namespace tessera::io {

/// The CRC of `bytes` after bytes whose CRC is `before` (0: none). crc32c(crc32c(0, a), b) is that of a and b together.
[[nodiscard]] std::uint32_t crc32c(std::uint32_t before, std::span<const std::byte> bytes);
/// The CRC of two adjacent ranges, from that of each and the length of the second, in O(log length).
[[nodiscard]] std::uint32_t crc32c_combine(std::uint32_t first, std::uint32_t second, std::uint64_t second_bytes);
/// The same by tables alone; for tests.
[[nodiscard]] std::uint32_t crc32c_by_table(std::uint32_t before, std::span<const std::byte> bytes);

}  // namespace tessera::io
