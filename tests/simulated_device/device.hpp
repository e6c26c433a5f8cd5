// SPDX-License-Identifier: Apache-2.0
#pragma once
// A simulated device: replaces runtime/base/cuda and kernels/cuda where tests run the program without a device. Only
// its own kernels and copies can access its memory (it is protected otherwise), and its queues run as late as possible,
// so that a missing wait, an early read and a host kernel on device memory fail. The program is compiled as for CUDA,
// unchanged.

#include <cstddef>
#include <functional>

#include "runtime/base/stream.hpp"

namespace tessera::simulated {

/// Enqueues `work` on `stream`. It runs, with the device's memory accessible, when something after it is waited for.
void launch(StreamView stream, std::function<void()> work);

/// Whether the bytes lie in memory of the device; in pinned memory of the host.
[[nodiscard]] bool on_device(const void* data, std::size_t bytes);
[[nodiscard]] bool pinned(const void* data, std::size_t bytes);

}  // namespace tessera::simulated
