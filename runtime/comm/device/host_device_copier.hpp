#pragma once
// HostDeviceCopier: a buffer's way between a device and pinned memory of the host, both directions at once, in two
// turns. On the host the same with plain copies.

#include <cstddef>

#include "runtime/base/device.hpp"
#include "runtime/base/stream.hpp"
#include "runtime/base/transfer.hpp"

namespace tessera::comm {

/// Used by one thread, which has the device current. Waiting sleeps.
class HostDeviceCopier {
 public:
  explicit HostDeviceCopier(Device device);
  ~HostDeviceCopier();
  HostDeviceCopier(const HostDeviceCopier&) = delete;
  HostDeviceCopier& operator=(const HostDeviceCopier&) = delete;

  /// What copies up, and work of others, run in the order of.
  void run_on(StreamView stream) { stream_ = stream; }
  /// HostDeviceCopier down see what the stream has been given so far.
  void begin();
  /// To the host, beside the stream, behind the last copy up of this turn, which uses the same buffer.
  void down(std::size_t turn, const RowCopy& block);
  void wait_down(std::size_t turn);
  /// To the device, in stream order.
  void up(std::size_t turn, const RowCopy& block);
  /// On the device, in stream order.
  void within(void* to, const void* from, std::size_t bytes);
  /// The host waits for what the stream has been given so far.
  void synchronize();

 private:
  [[nodiscard]] bool on_device() const { return device_.kind == Device::Kind::cuda; }
  Device device_;
  StreamView stream_{nullptr};
  void* down_ = nullptr;  // a stream of its own: the directions have engines of their own
  void *given_ = nullptr, *arrived_[2] = {}, *left_[2] = {};  // events
};

}  // namespace tessera::comm
