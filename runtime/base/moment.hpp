#pragma once
// Moment: when a device's stream came to a point, by the device's clock. No order: that is Event's.

#include "runtime/base/stream.hpp"

namespace tessera {

/// Made before the steps, recorded again and again without allocation. Must outlive the stream's work that mentions it.
class Moment {
 public:
  explicit Moment(Device device);
  ~Moment();
  Moment(Moment&& other) noexcept;
  Moment& operator=(Moment&&) = delete;

  /// When everything that `stream` has been given so far is done there. `stream` is on the moment's device.
  void record(Stream& stream);
  /// Blocks until the latest record has passed, which has been issued.
  void wait() const;
  /// Between the latest records of two moments of one device, both passed; a clock of about a microsecond.
  [[nodiscard]] static double seconds(const Moment& from, const Moment& to);

 private:
  void* mark_ = nullptr;
};

}  // namespace tessera
