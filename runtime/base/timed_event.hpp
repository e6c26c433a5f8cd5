// SPDX-License-Identifier: Apache-2.0
#pragma once
// TimedEvent: the time at which a device's stream reached a point, by the device's clock. For measurement; Event orders
// work.

#include "runtime/base/stream.hpp"

namespace tessera {

/// Recording allocates nothing. Must outlive the stream's work that uses it.
class TimedEvent {
 public:
  explicit TimedEvent(Device device);
  ~TimedEvent();
  TimedEvent(TimedEvent&& other) noexcept;
  TimedEvent& operator=(TimedEvent&&) = delete;

  /// Takes the time when all work given to `stream` so far is done. `stream` is on this event's device.
  void record(Stream& stream);
  /// Blocks until the latest record, which must have been issued, has passed.
  void wait() const;
  /// Seconds between the latest records of two events of one device, both passed; resolution about 1 µs.
  [[nodiscard]] static double seconds(const TimedEvent& from, const TimedEvent& to);

 private:
  void* mark_ = nullptr;
};

}  // namespace tessera
