#pragma once
// Bytes moved in the order of a stream, wherever they lie: at once on the host, behind the stream's
// work on a device. No arithmetic.

#include <cstddef>

#include "runtime/base/device.hpp"
#include "runtime/base/stream.hpp"

namespace tessera {

/// Stretches that do not overlap. Host memory that a device's stream copies is pinned, and left
/// alone until the copy has passed.
void copy_bytes(void* to, const void* from, std::size_t bytes, StreamView stream);

/// `rows` rows of `width` bytes, one every `to_pitch` / `from_pitch` bytes.
struct RowCopy {
  void* to = nullptr;
  std::size_t to_pitch = 0;
  const void* from = nullptr;
  std::size_t from_pitch = 0;
  std::size_t width = 0, rows = 0;
};
void copy_rows(const RowCopy& copy, StreamView stream);

/// Every byte becomes 0.
void clear_bytes(void* to, std::size_t bytes, StreamView stream);

/// Done on return, for start-up, files and tests: waits for all that `device` has been given. One side lies there, the
/// other may be any memory; device host: a plain copy.
void copy_now(Device device, void* to, const void* from, std::size_t bytes);

/// Likewise: they become 0.
void clear_now(Device device, void* to, std::size_t bytes);

/// Waits for all that `device` has been given.
void synchronize(Device device);

/// Bytes of a device at a time that pass through memory of the host on their way to or from a file.
inline constexpr std::size_t host_staging_bytes = std::size_t{4} << 20;

}  // namespace tessera
