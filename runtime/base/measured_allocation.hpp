// SPDX-License-Identifier: Apache-2.0
#pragma once
// How much of a device's memory an allocation takes, by what the driver says before and after it. Another process on
// the card does not change the answer.

#include <cstddef>
#include <functional>
#include <string>

namespace tessera {

/// What a driver says about a device's memory at one time, in bytes (cudaMemGetInfo): beside every process that uses
/// it.
struct MemoryReading {
  std::size_t free = 0, total = 0;
};

/// A device, as measure_allocation asks it.
struct MeasuredDevice {
  std::string uuid;  // processes of this host measure one at a time on devices of equal uuid; "": at once
  std::function<MemoryReading()> read;
  std::function<std::byte*()> allocate;  // throws if there is no room
  std::function<void(std::byte*)> release;
};

struct MeasuredAllocation {
  std::byte* block = nullptr;
  std::size_t taken = 0;  // by how much free memory shrank
};

/// Allocates, reading free memory before and after, and again from the release on until two attempts agree: what
/// another process allocates or frees in between changes one of them only. `bytes` is what the caller asks for; an
/// attempt in which free memory shrank by less cannot be right and agrees with none. After 16 attempts the smallest
/// possible reading stands. Throws what `allocate` throws.
[[nodiscard]] MeasuredAllocation measure_allocation(std::size_t bytes, const MeasuredDevice& device);

}  // namespace tessera
