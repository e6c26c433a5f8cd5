// SPDX-License-Identifier: Apache-2.0
// Name and memory of a device, from the backend's survey.
#include "runtime/base/device_info.hpp"

#include "runtime/base/cuda/devices.hpp"
#include "runtime/base/cuda/memory.hpp"
#include "runtime/base/error.hpp"

namespace tessera {

std::string device_name([[maybe_unused]] Device device) {
  if constexpr (cuda_built)
    if (device.kind == Device::Kind::cuda)
      for (const auto& gpu : cuda::survey().devices)
        if (gpu.index == device.index) return gpu.name;
  return {};
}

std::uint64_t device_memory([[maybe_unused]] Device device) {
  if constexpr (cuda_built)
    if (device.kind == Device::Kind::cuda)
      for (const auto& gpu : cuda::survey().devices)
        if (gpu.index == device.index) return gpu.memory;
  return 0;
}

std::uint64_t device_memory_in_use([[maybe_unused]] Device device) {
  if constexpr (cuda_built)
    if (device.kind == Device::Kind::cuda) return cuda::memory_in_use(device);
  return 0;
}

}  // namespace tessera
