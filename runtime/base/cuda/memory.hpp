#pragma once
// Device memory, pinned host memory, and copies in stream order. Allocation is for start-up.

#include <cstddef>

#include "runtime/base/device.hpp"
#include "runtime/base/stream.hpp"
#include "runtime/base/transfer.hpp"

namespace tessera::cuda {

/// Zero-filled; throws Error (does_not_fit) if the device has no room.
[[nodiscard]] std::byte* allocate(Device device, std::size_t bytes);
/// Bytes of the device that are taken, by whomever.
[[nodiscard]] std::size_t memory_in_use(Device device);
void release(Device device, std::byte* block) noexcept;
/// Page-locked host memory, zero-filled, which every device of the process copies at full speed and without the host
/// waiting.
[[nodiscard]] std::byte* allocate_pinned(Device device, std::size_t bytes);
void release_pinned(std::byte* block) noexcept;

/// Between any two places that CUDA knows, in stream order. From or to host memory that is not pinned, the host waits.
void copy(void* to, const void* from, std::size_t bytes, StreamView stream);
void copy(const RowCopy& copy, StreamView stream);
/// Every byte of it becomes `value`.
void fill(void* to, unsigned char value, std::size_t bytes, StreamView stream);

/// The same on the calling thread, done on return, for what is done once or for a test: no stream has to be named.
void copy_now(Device device, void* to, const void* from, std::size_t bytes);
void fill_now(Device device, void* to, unsigned char value, std::size_t bytes);

/// The calling thread waits for all that the device has been given.
void synchronize(Device device);

}  // namespace tessera::cuda
