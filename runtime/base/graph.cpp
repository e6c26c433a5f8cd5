// SPDX-License-Identifier: Apache-2.0
#include "runtime/base/graph.hpp"

#include "runtime/base/cuda/devices.hpp"
#include "runtime/base/cuda/stream.hpp"
#include "runtime/base/error.hpp"

namespace tessera {

LaunchGraph::~LaunchGraph() {
  if constexpr (cuda_built)
    if (handle_ != nullptr) cuda::destroy_graph(handle_);
}

void LaunchGraph::begin([[maybe_unused]] Stream& stream) {
  TESSERA_ASSERT(cuda_built && stream.device().kind == Device::Kind::cuda, "a graph of no device");
  if constexpr (cuda_built) {
    cuda::use(stream.device());
    cuda::begin_capture(stream.view().handle);
  }
}

void LaunchGraph::end([[maybe_unused]] Stream& stream) {
  if constexpr (cuda_built) {
    void* const made = cuda::end_capture(stream.view().handle);
    if (handle_ != nullptr) cuda::destroy_graph(handle_);
    handle_ = made;
  }
}

void LaunchGraph::launch([[maybe_unused]] Stream& stream) const {
  TESSERA_ASSERT(handle_ != nullptr, "nothing is captured");
  if constexpr (cuda_built) {
    cuda::use(stream.device());
    cuda::launch_graph(handle_, stream.view().handle);
  }
}

}  // namespace tessera
