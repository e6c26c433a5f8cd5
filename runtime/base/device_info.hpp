#pragma once
// What a device is, for those who have one: its name and its memory. Which devices there are is the backend's business.

#include <cstdint>
#include <string>

#include "runtime/base/device.hpp"

namespace tessera {

/// "NVIDIA H200 (GPU 0 of its host)"; "" of the host.
[[nodiscard]] std::string device_name(Device device);

/// Bytes of its memory in all; 0 of the host.
[[nodiscard]] std::uint64_t device_memory(Device device);

/// Bytes of it in use now: this run's, its libraries', and everybody else's; 0 of the host.
[[nodiscard]] std::uint64_t device_memory_in_use(Device device);

}  // namespace tessera
