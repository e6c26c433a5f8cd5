#pragma once
// Device memory, pinned host memory, and copies in stream order. Allocation is for start-up.

#include <cstddef>

#include "runtime/base/device.hpp"
#include "runtime/base/stream.hpp"
#include "runtime/base/transfer.hpp"

namespace tessera::cuda {

/// Zero-filled; throws Error (does_not_fit) if the device has no room. `taken`: by how much cudaMemGetInfo's free
/// memory shrank.
[[nodiscard]] std::byte* allocate(Device device, std::size_t bytes, std::size_t* taken = nullptr);
/// Bytes of the device that are in use, by any process (cudaMemGetInfo).
[[nodiscard]] std::size_t memory_in_use(Device device);
void release(Device device, std::byte* block) noexcept;
/// Page-locks host memory, so that every device of the process copies it at full speed and without the host waiting.
void pin(Device device, std::byte* block, std::size_t bytes);
void unpin(std::byte* block) noexcept;

/// A stream-ordered copy between any two memories that CUDA knows. Blocks the host if host memory is not pinned.
void copy(void* to, const void* from, std::size_t bytes, StreamView stream);
void copy(const RowCopy& copy, StreamView stream);
/// Sets every byte to `value`.
void fill(void* to, unsigned char value, std::size_t bytes, StreamView stream);

/// Synchronous, on the calling thread: for start-up and tests.
void copy_now(Device device, void* to, const void* from, std::size_t bytes);
void fill_now(Device device, void* to, unsigned char value, std::size_t bytes);

/// Waits for all work given to the device.
void synchronize(Device device);

}  // namespace tessera::cuda
