// SPDX-License-Identifier: Apache-2.0
#pragma once
// Name and memory of a device. cuda/devices.hpp lists the devices there are.

#include <cstdint>
#include <optional>
#include <string>

#include "runtime/base/device.hpp"

namespace tessera {

/// The name that the driver reports, "NVIDIA H200"; "" for the host.
[[nodiscard]] std::string device_name(Device device);

/// A device's memory now, in bytes; zeros for the host.
struct DeviceMemory {
  std::uint64_t free = 0, total = 0;     // beside every process that uses it
  std::optional<std::uint64_t> process;  // of this process, context and libraries included; none: the driver hides it
};
/// Asks the driver: some microseconds, with `process` up to a millisecond.
[[nodiscard]] DeviceMemory device_memory(Device device);

}  // namespace tessera
