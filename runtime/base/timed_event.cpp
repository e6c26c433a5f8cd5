// SPDX-License-Identifier: Apache-2.0
#include "runtime/base/timed_event.hpp"

#include <utility>

#include "runtime/base/cuda/stream.hpp"
#include "runtime/base/error.hpp"

namespace tessera {

TimedEvent::TimedEvent([[maybe_unused]] Device device) {
  TESSERA_ASSERT(cuda_built && device.kind == Device::Kind::cuda, "a moment of no device");
  if constexpr (cuda_built) mark_ = cuda::make_event(device, cuda::EventKind::timed);
}

TimedEvent::~TimedEvent() {
  if constexpr (cuda_built)
    if (mark_ != nullptr) cuda::destroy_event(mark_);
}

TimedEvent::TimedEvent(TimedEvent&& other) noexcept : mark_(std::exchange(other.mark_, nullptr)) {}

void TimedEvent::record([[maybe_unused]] Stream& stream) {
  if constexpr (cuda_built)
    stream.enqueue(
        [](void* mark, std::int64_t of) { cuda::record(mark, reinterpret_cast<Stream*>(of)->view().handle); }, mark_,
        reinterpret_cast<std::int64_t>(&stream));
}

void TimedEvent::wait() const {
  if constexpr (cuda_built) cuda::synchronize(mark_);
}

double TimedEvent::seconds([[maybe_unused]] const TimedEvent& from, [[maybe_unused]] const TimedEvent& to) {
  if constexpr (cuda_built) return 1e-3 * cuda::milliseconds(from.mark_, to.mark_);
  return 0;
}

}  // namespace tessera
