// SPDX-License-Identifier: Apache-2.0
#pragma once
// Device memory, pinned host memory, and copies in stream order. Allocation is for start-up.

#include <cstddef>
#include <optional>

#include "runtime/base/device.hpp"
#include "runtime/base/measured_allocation.hpp"
#include "runtime/base/stream.hpp"
#include "runtime/base/transfer.hpp"

namespace tessera::cuda {

/// Zero-filled; throws Error (does_not_fit) if the device has no room. `taken`: receives what the driver gave for it
/// (measure_allocation), which allocates twice or more.
[[nodiscard]] std::byte* allocate(Device device, std::size_t bytes, std::size_t* taken = nullptr);
/// Free and total memory of the device (cudaMemGetInfo). Makes it current, so that this process has a context there.
[[nodiscard]] MemoryReading read_memory(Device device);
/// Bytes of the device that this process uses, context and libraries included, by NVML's list of processes; none: NVML
/// is missing, or does not list this process (a container, or a driver that hides it).
[[nodiscard]] std::optional<std::size_t> process_memory(Device device);
void release(Device device, std::byte* block) noexcept;
/// Page-locks host memory, so that every device of the process copies it at full speed and without the host waiting.
void pin(Device device, std::byte* block, std::size_t bytes);
void unpin(std::byte* block) noexcept;

/// CUDA's default stream. Tessera's streams and it do not wait for each other.
inline constexpr StreamView default_stream{nullptr};

/// A stream-ordered copy between any two memories that CUDA knows. From pageable host memory it returns when CUDA has
/// staged the bytes, which may be before they are on the device; to pageable host memory it returns when it is done
/// (CUDA Runtime API, "API synchronization behavior").
void copy(void* to, const void* from, std::size_t bytes, StreamView stream);
/// A pitch is at most max_pitch.
void copy(const RowCopy& copy, StreamView stream);
/// cudaMemcpy2D's limit on every card (cudaDevAttrMaxPitch).
inline constexpr std::size_t max_pitch = (std::size_t{1} << 31) - 1;
/// Sets every byte to `value`.
void fill(void* to, unsigned char value, std::size_t bytes, StreamView stream);

/// Waits for all work given to the device.
void synchronize(Device device);

}  // namespace tessera::cuda
