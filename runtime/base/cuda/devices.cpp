// SPDX-License-Identifier: Apache-2.0
#include "runtime/base/cuda/devices.hpp"

#include <cuda_runtime.h>

#include "runtime/base/cuda/check.hpp"
#include "runtime/base/error.hpp"

namespace tessera::cuda {

static_assert(cuda_built, "this folder is compiled where the CUDA backend is");

std::string why_no_device(int status) {
  switch (status) {
    case cudaErrorInsufficientDriver: return "no NVIDIA driver, or one older than CUDA " + toolkit() + " needs";
    case cudaErrorStubLibrary: return "a stub libcuda.so.1 is loaded in place of the driver's (see LD_LIBRARY_PATH)";
    case cudaErrorNoDevice: return "a driver, but no device (CUDA_VISIBLE_DEVICES may hide them)";
    default: {
      const auto error = static_cast<cudaError_t>(status);
      return strfmt("the driver does not start: %s (%s, %d)", cudaGetErrorString(error), cudaGetErrorName(error),
                    status);
    }
  }
}

/// As nvidia-smi prints it, without its prefix GPU- or MIG-.
static std::string text_of(const cudaUUID_t& uuid) {
  std::string text;
  for (const char byte : uuid.bytes) {
    if (text.size() == 8 || text.size() == 13 || text.size() == 18 || text.size() == 23) text += '-';
    text += strfmt("%02x", static_cast<unsigned char>(byte));
  }
  return text;
}

static DeviceProperties facts_of(int index) {
  cudaDeviceProp properties{};
  TESSERA_CUDA(cudaGetDeviceProperties(&properties, index));
  char bus_id[32] = "";
  TESSERA_CUDA(cudaDeviceGetPCIBusId(bus_id, sizeof bus_id, index));
  return {.index = index,
          .name = properties.name,
          .bus_id = bus_id,
          .uuid = text_of(properties.uuid),
          .major = properties.major,
          .minor = properties.minor,
          .multiprocessors = properties.multiProcessorCount,
          .memory = properties.totalGlobalMem};
}

static Survey ask() {
  Survey found;
  found.runtime = CUDART_VERSION;
  (void)cudaDriverGetVersion(&found.driver);
  int count = 0;  // left unwritten on error
  const cudaError_t status = cudaGetDeviceCount(&count);
  (void)cudaGetLastError();
  if (status != cudaSuccess) {
    found.why_none = why_no_device(status);
    return found;
  }
  for (int i = 0; i < count; ++i) found.devices.push_back(facts_of(i));
  if (count == 0) found.why_none = why_no_device(cudaErrorNoDevice);
  return found;
}

const Survey& survey() {
  static const Survey found = ask();
  return found;
}

void use(Device device) {
  thread_local int current = -1;
  TESSERA_ASSERT(device.kind == Device::Kind::cuda, "a host device made current");
  if (current == device.index) return;
  TESSERA_CUDA(cudaSetDevice(device.index));
  current = device.index;
}

const char* architectures() { return TESSERA_CUDA_ARCHITECTURES; }

std::string toolkit() { return strfmt("%d.%d", CUDART_VERSION / 1000, CUDART_VERSION % 1000 / 10); }

}  // namespace tessera::cuda
