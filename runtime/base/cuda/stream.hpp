#pragma once
// CUDA's streams and events as handles: what stands behind runtime/base/stream.hpp on a device. No queue of its
// own.

#include <cstdint>

#include "runtime/base/device.hpp"
#include "runtime/base/stream.hpp"

namespace tessera::cuda {

/// A stream that does not wait for the default stream. Communication runs at high priority.
/// Destroying it lets queued work finish.
[[nodiscard]] void* make_stream(Device device, Priority priority);
void destroy_stream(void* stream) noexcept;

/// `timed` events cost more to record; a host that waits for either kind sleeps.
enum class EventKind : unsigned char { order, timed };
[[nodiscard]] void* make_event(Device device, EventKind kind);
void destroy_event(void* event) noexcept;

void record(void* event, void* stream);
/// What `stream` is given later runs after the event's latest record. The host goes on.
void wait(void* stream, void* event);
/// The host sleeps until the event's latest record has passed.
void synchronize(void* event);
[[nodiscard]] bool passed(void* event);
/// Milliseconds between two timed events that have passed.
[[nodiscard]] double milliseconds(void* from, void* to);

}  // namespace tessera::cuda
