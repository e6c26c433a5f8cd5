// SPDX-License-Identifier: Apache-2.0
#include "runtime/base/cuda/memory.hpp"

#include <cuda_runtime.h>

#include <exception>

#include "runtime/base/cuda/check.hpp"
#include "runtime/base/cuda/devices.hpp"

namespace tessera::cuda {

std::byte* allocate(Device device, std::size_t bytes, std::size_t* taken) {
  use(device);
  MeasuredAllocation made;
  const auto allocate_once = [&] {
    void* block = nullptr;
    TESSERA_CUDA(cudaMalloc(&block, bytes));
    return static_cast<std::byte*>(block);
  };
  if (taken == nullptr) {
    made.block = allocate_once();
  } else {
    const DeviceProperties* const gpu = properties_of(device);
    made = measure_allocation(bytes, {.uuid = gpu != nullptr ? gpu->uuid : "",
                                      .read = [&] { return read_memory(device); },
                                      .allocate = allocate_once,
                                      .release = [](std::byte* block) { TESSERA_CUDA(cudaFree(block)); }});
    *taken = made.taken;
  }
  TESSERA_CUDA(cudaMemset(made.block, 0, bytes));
  cuda::synchronize(device);
  return made.block;
}

MemoryReading read_memory(Device device) {
  use(device);
  MemoryReading now;
  TESSERA_CUDA(cudaMemGetInfo(&now.free, &now.total));
  return now;
}

void release(Device device, std::byte* block) noexcept {
  try {
    use(device);
  } catch (const std::exception&) {  // at the end of the process: the driver frees it
    return;
  }
  TESSERA_CUDA_QUIETLY(cudaFree(block));
}

void pin(Device device, std::byte* block, std::size_t bytes) {
  use(device);
  TESSERA_CUDA(cudaHostRegister(block, bytes, cudaHostRegisterPortable));
}

void unpin(std::byte* block) noexcept { TESSERA_CUDA_QUIETLY(cudaHostUnregister(block)); }

void copy(void* to, const void* from, std::size_t bytes, StreamView stream) {
  if (bytes == 0) return;
  TESSERA_CUDA(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, static_cast<cudaStream_t>(stream.handle)));
}

void copy(const RowCopy& c, StreamView stream) {
  if (c.width == 0 || c.rows == 0) return;
  if (c.rows == 1) return copy(c.to, c.from, c.width, stream);
  TESSERA_CUDA(cudaMemcpy2DAsync(c.to, c.to_pitch, c.from, c.from_pitch, c.width, c.rows, cudaMemcpyDefault,
                                 static_cast<cudaStream_t>(stream.handle)));
}

void fill(void* to, unsigned char value, std::size_t bytes, StreamView stream) {
  if (bytes > 0) TESSERA_CUDA(cudaMemsetAsync(to, value, bytes, static_cast<cudaStream_t>(stream.handle)));
}

void synchronize(Device device) {
  use(device);
  TESSERA_CUDA(cudaDeviceSynchronize());
}

}  // namespace tessera::cuda
