// SPDX-License-Identifier: Apache-2.0
#pragma once
// Name and memory of a device. cuda/devices.hpp lists the devices there are.

#include <cstdint>
#include <string>

#include "runtime/base/device.hpp"

namespace tessera {

/// The name that the driver reports, "NVIDIA H200"; "" for the host.
[[nodiscard]] std::string device_name(Device device);

/// Total bytes of device memory; 0 for the host.
[[nodiscard]] std::uint64_t device_memory(Device device);

/// Bytes of device memory in use now, by any process; 0 for the host.
[[nodiscard]] std::uint64_t device_memory_in_use(Device device);

}  // namespace tessera
