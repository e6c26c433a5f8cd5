#pragma once
// TimedEvent: when a device's stream came to a point, by the device's clock. No order: that is Event's.

#include "runtime/base/stream.hpp"

namespace tessera {

/// Made before the steps, recorded again and again without allocation. Must outlive the stream's work that mentions it.
class TimedEvent {
 public:
  explicit TimedEvent(Device device);
  ~TimedEvent();
  TimedEvent(TimedEvent&& other) noexcept;
  TimedEvent& operator=(TimedEvent&&) = delete;

  /// When everything that `stream` has been given so far is done there. `stream` is on the moment's device.
  void record(Stream& stream);
  /// Blocks until the latest record has passed, which has been issued.
  void wait() const;
  /// Between the latest records of two moments of one device, both passed; a clock of about a microsecond.
  [[nodiscard]] static double seconds(const TimedEvent& from, const TimedEvent& to);

 private:
  void* mark_ = nullptr;
};

}  // namespace tessera
