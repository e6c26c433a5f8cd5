// SPDX-License-Identifier: Apache-2.0
#include "runtime/comm/device/host_device_copier.hpp"

#include <cstring>

#include "runtime/base/cuda/stream.hpp"
#include "runtime/base/error.hpp"

namespace tessera::comm {

namespace {

void copy_on_host(const RowCopy& block) {
  for (std::size_t row = 0; row < block.rows; ++row)
    std::memmove(static_cast<std::byte*>(block.to) + row * block.to_pitch,
                 static_cast<const std::byte*>(block.from) + row * block.from_pitch, block.width);
}

}  // namespace

HostDeviceCopier::HostDeviceCopier(Device device) : device_(device) {
  TESSERA_ASSERT(cuda_built || !on_device(), "a device, in a build without devices");
  if constexpr (cuda_built) {
    if (!on_device()) return;
    down_ = cuda::make_stream(device_, Priority::high);
    for (void** event : {&given_, &arrived_[0], &arrived_[1], &left_[0], &left_[1]})
      *event = cuda::make_event(device_, cuda::EventKind::order);
  }
}

HostDeviceCopier::~HostDeviceCopier() {
  if constexpr (cuda_built) {
    if (!on_device()) return;
    for (void* event : {given_, arrived_[0], arrived_[1], left_[0], left_[1]}) cuda::destroy_event(event);
    cuda::destroy_stream(down_);
  }
}

void HostDeviceCopier::begin() {
  if constexpr (cuda_built) {
    if (!on_device()) return;
    TESSERA_ASSERT(stream_.handle != nullptr, "run_on() comes before the first collective");
    cuda::record(given_, stream_.handle);
    cuda::wait(down_, given_);
  }
}

void HostDeviceCopier::down(std::size_t turn, const RowCopy& block) {
  if (!on_device()) return copy_on_host(block);
  if constexpr (cuda_built) {
    cuda::wait(down_, left_[turn]);
    copy_rows(block, StreamView{down_});
    cuda::record(arrived_[turn], down_);
  }
}

void HostDeviceCopier::wait_down([[maybe_unused]] std::size_t turn) {
  if constexpr (cuda_built)
    if (on_device()) cuda::synchronize(arrived_[turn]);
}

void HostDeviceCopier::up(std::size_t turn, const RowCopy& block) {
  if (!on_device()) return copy_on_host(block);
  if constexpr (cuda_built) {
    copy_rows(block, stream_);
    cuda::record(left_[turn], stream_.handle);
  }
}

void HostDeviceCopier::within(void* to, const void* from, std::size_t bytes) {
  if (!on_device()) return copy_on_host({to, bytes, from, bytes, bytes, 1});
  copy_bytes(to, from, bytes, stream_);
}

void HostDeviceCopier::synchronize() {
  if constexpr (cuda_built) {
    if (!on_device()) return;
    cuda::record(given_, stream_.handle);
    cuda::synchronize(given_);
  }
}

}  // namespace tessera::comm
