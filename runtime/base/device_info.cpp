// SPDX-License-Identifier: Apache-2.0
// Name and memory of a device, from the backend's survey.
#include "runtime/base/device_info.hpp"

#include "runtime/base/cuda/devices.hpp"
#include "runtime/base/cuda/memory.hpp"
#include "runtime/base/error.hpp"

namespace tessera {

std::string device_name([[maybe_unused]] Device device) {
  if constexpr (cuda_built)
    if (const cuda::DeviceProperties* const gpu = cuda::properties_of(device)) return gpu->name;
  return {};
}

DeviceMemory device_memory([[maybe_unused]] Device device) {
  if constexpr (cuda_built)
    if (device.kind == Device::Kind::cuda) {
      const MemoryReading now = cuda::read_memory(device);
      return {now.free, now.total, cuda::process_memory(device)};
    }
  return {};
}

}  // namespace tessera
