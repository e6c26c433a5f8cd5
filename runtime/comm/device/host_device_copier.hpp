// SPDX-License-Identifier: Apache-2.0
#pragma once
// HostDeviceCopier: copies between a device and pinned host memory, in both directions at once, with two buffers in
// turns. Where the device is the host: plain copies.

#include <cstddef>

#include "runtime/base/device.hpp"
#include "runtime/base/stream.hpp"
#include "runtime/base/transfer.hpp"

namespace tessera::comm {

/// One thread uses it, with the device current. Waits sleep.
class HostDeviceCopier {
 public:
  explicit HostDeviceCopier(Device device);
  ~HostDeviceCopier();
  HostDeviceCopier(const HostDeviceCopier&) = delete;
  HostDeviceCopier& operator=(const HostDeviceCopier&) = delete;

  /// The stream that copies to the device are enqueued on.
  void run_on(StreamView stream) { stream_ = stream; }
  /// Copies to the host will see what the stream has been given so far.
  void begin();
  /// Copies to the host on a stream of its own, after the last copy to the device of this turn, which uses the same
  /// buffer.
  void down(std::size_t turn, const RowCopy& block);
  void wait_down(std::size_t turn);
  /// Copies to the device, in stream order.
  void up(std::size_t turn, const RowCopy& block);
  /// Copies on the device, in stream order.
  void within(void* to, const void* from, std::size_t bytes);
  /// Waits until the stream has done all that it was given.
  void synchronize();

 private:
  [[nodiscard]] bool on_device() const { return device_.kind == Device::Kind::cuda; }
  Device device_;
  StreamView stream_{nullptr};
  void* down_ = nullptr;                                      // own stream: each direction has its own copy engine
  void *given_ = nullptr, *arrived_[2] = {}, *left_[2] = {};  // events
};

}  // namespace tessera::comm
