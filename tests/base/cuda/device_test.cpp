// SPDX-License-Identifier: Apache-2.0
// The devices of this machine, on a machine that has some.
#include <cuda_runtime.h>

#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

#include "runtime/base/cuda/memory.hpp"
#include "tests/base/cuda/needs_device.hpp"

namespace tessera {
namespace {

TEST(CudaDevice, has_a_name_memory_and_a_capability) {
  TESSERA_NEEDS_DEVICE();
  for (const auto& device : cuda::survey().devices) {
    EXPECT_FALSE(device.name.empty());
    EXPECT_FALSE(device.bus_id.empty());
    EXPECT_EQ(device.uuid.size(), 36U);
    EXPECT_GT(device.memory, std::size_t{1} << 30);
    EXPECT_GT(device.multiprocessors, 0);
    EXPECT_GE(device.major, 5);
  }
  EXPECT_GE(cuda::survey().driver, 12000);
}

TEST(CudaDevice, is_current_where_it_was_made_so) {
  TESSERA_NEEDS_DEVICE();
  int current = -1;
  ASSERT_EQ(cudaGetDevice(&current), cudaSuccess);
  EXPECT_EQ(current, 0);
}

constexpr std::size_t mib = std::size_t{1} << 20;

TEST(CudaMemory, an_allocation_takes_what_the_driver_gives) {
  TESSERA_NEEDS_DEVICE();
  std::size_t taken = 0;
  std::byte* const block = cuda::allocate(test_device(), 5 * mib, &taken);
  EXPECT_GE(taken, 5 * mib);
  EXPECT_LE(taken, 6 * mib) << "in blocks of 2 MiB";
  cuda::release(test_device(), block);
}

TEST(CudaMemory, what_others_allocate_meanwhile_does_not_count) {
  TESSERA_NEEDS_DEVICE();
  std::atomic<bool> done = false;
  std::thread other([&] {  // free memory is the card's: a thread counts as another process does
    std::vector<void*> blocks;
    for (std::size_t i = 2; i < 40 && !done.load(); ++i) {
      void* block = nullptr;
      if (cudaMalloc(&block, 2 * i * mib) == cudaSuccess) blocks.push_back(block);
      std::this_thread::sleep_for(std::chrono::milliseconds(3));
    }
    for (void* const block : blocks) (void)cudaFree(block);
  });
  for (int i = 0; i < 10; ++i) {
    std::size_t taken = 0;
    std::byte* const block = cuda::allocate(test_device(), 64 * mib, &taken);
    EXPECT_EQ(taken, 64 * mib);
    cuda::release(test_device(), block);
  }
  done.store(true);
  other.join();
}

TEST(CudaMemory, of_this_process_has_its_blocks_where_the_driver_lists_it) {
  TESSERA_NEEDS_DEVICE();
  const MemoryReading card = cuda::read_memory(test_device());
  EXPECT_GT(card.total, card.free);
  const std::optional<std::size_t> before = cuda::process_memory(test_device());
  std::byte* const block = cuda::allocate(test_device(), 64 * mib);
  const std::optional<std::size_t> after = cuda::process_memory(test_device());
  cuda::release(test_device(), block);
  if (!before || !after) GTEST_SKIP() << "NVML does not list this process";
  EXPECT_GE(*after, *before + 64 * mib);
  EXPECT_LE(*after, card.total);
}

}  // namespace
}  // namespace tessera
