// SPDX-License-Identifier: Apache-2.0
// What NVML says that this process uses of a device.
#include <unistd.h>

#include <string>
#include <vector>

#include "runtime/base/cuda/devices.hpp"
#include "runtime/base/cuda/library.hpp"
#include "runtime/base/cuda/memory.hpp"

namespace tessera::cuda {

namespace {

// nvml.h is no part of CUDA's runtime packages, so what is needed of it is declared here ("NVML API Reference Guide",
// 5.16 nvmlDeviceGetComputeRunningProcesses_v3).
struct NvmlProcess {
  unsigned int pid;
  unsigned long long memory;  // bytes; ~0: not available
  unsigned int gpu_instance, compute_instance;
};
constexpr int nvml_success = 0, nvml_insufficient_size = 7;

struct Nvml {
  int (*handle)(const char* uuid, void** device) = nullptr;
  int (*processes)(void* device, unsigned int* count, NvmlProcess* found) = nullptr;
  bool there = false;

  Nvml() {
    static Library library("libnvidia-ml.so.1", "NVIDIA's driver");
    if (!library.there()) return;
    try {
      const auto init = reinterpret_cast<int (*)()>(library.symbol("nvmlInit_v2"));
      handle = reinterpret_cast<decltype(handle)>(library.symbol("nvmlDeviceGetHandleByUUID"));
      processes = reinterpret_cast<decltype(processes)>(library.symbol("nvmlDeviceGetComputeRunningProcesses_v3"));
      there = init() == nvml_success;
    } catch (const Error&) {  // a driver before 510 has no _v3
    }
  }
};

/// Where the list says nothing of this process, the answer is none: NVML may have no names for the processes of a
/// container.
std::optional<std::size_t> memory_in(const std::vector<NvmlProcess>& processes) {
  constexpr unsigned long long unknown = ~0ULL;
  for (const NvmlProcess& process : processes)
    if (process.pid == static_cast<unsigned int>(::getpid()) && process.memory != unknown) return process.memory;
  return std::nullopt;
}

}  // namespace

std::optional<std::size_t> process_memory(Device device) {
  static const Nvml nvml;
  const DeviceProperties* const gpu = properties_of(device);
  if (!nvml.there || gpu == nullptr) return std::nullopt;
  void* handle = nullptr;
  if (nvml.handle(("GPU-" + gpu->uuid).c_str(), &handle) != nvml_success &&
      nvml.handle(("MIG-" + gpu->uuid).c_str(), &handle) != nvml_success)
    return std::nullopt;
  std::vector<NvmlProcess> processes(64);
  for (int tries = 0; tries < 4; ++tries) {  // processes may begin meanwhile
    auto count = static_cast<unsigned int>(processes.size());
    const int status = nvml.processes(handle, &count, processes.data());
    processes.resize(status == nvml_success ? count : count + 64);
    if (status == nvml_success) return memory_in(processes);
    if (status != nvml_insufficient_size) return std::nullopt;
  }
  return std::nullopt;
}

}  // namespace tessera::cuda
