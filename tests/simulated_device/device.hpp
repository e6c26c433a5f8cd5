#pragma once
// A simulated device: what stands behind runtime/base/cuda and kernels/cuda where tests run the product without one.
// Its memory can be touched by nobody but its own kernels and copies, and its queues run as late as they may, so that a
// missing wait, an early read and a host kernel on device memory fail. The product is compiled as for CUDA, and knows
// nothing of it.

#include <cstddef>
#include <functional>

#include "runtime/base/stream.hpp"

namespace tessera::simulated {

/// Behind what `stream` has been given: `work` runs, with the device's memory open, when something behind it is waited
/// for.
void launch(StreamView stream, std::function<void()> work);

/// Whether the bytes lie in memory of the device; in pinned memory of the host.
[[nodiscard]] bool on_device(const void* data, std::size_t bytes);
[[nodiscard]] bool pinned(const void* data, std::size_t bytes);

}  // namespace tessera::simulated
