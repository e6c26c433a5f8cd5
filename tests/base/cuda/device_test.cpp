// SPDX-License-Identifier: Apache-2.0
// The devices of this machine, on a machine that has some.
#include <cuda_runtime.h>

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

}  // namespace
}  // namespace tessera
