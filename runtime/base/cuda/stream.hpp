// SPDX-License-Identifier: Apache-2.0
#pragma once
// CUDA streams, events and graphs as handles: the device side of runtime/base/stream.hpp and graph.hpp.

#include <cstdint>

#include "runtime/base/device.hpp"
#include "runtime/base/stream.hpp"

namespace tessera::cuda {

/// A non-blocking stream: it does not wait for the default stream. Communication runs at high priority. Destroying it
/// lets queued work finish.
[[nodiscard]] void* make_stream(Device device, Priority priority);
void destroy_stream(void* stream) noexcept;

/// `timed` events cost more to record. A host that waits for an event sleeps.
enum class EventKind : unsigned char { order, timed };
[[nodiscard]] void* make_event(Device device, EventKind kind);
void destroy_event(void* event) noexcept;

void record(void* event, void* stream);
/// Work enqueued later on `stream` runs after the event's latest record. Does not block the host.
void wait(void* stream, void* event);
/// Blocks (sleeps) until the event's latest record has passed.
void synchronize(void* event);
[[nodiscard]] bool passed(void* event);
/// Milliseconds between two timed events that have passed.
[[nodiscard]] double milliseconds(void* from, void* to);

/// What this thread issues on `stream` until end_capture becomes a graph. It may issue nothing else that waits for the
/// device or allocates; other threads may.
void begin_capture(void* stream);
[[nodiscard]] void* end_capture(void* stream);
/// A graph that is running is destroyed after it.
void destroy_graph(void* graph) noexcept;
void launch_graph(void* graph, void* stream);

}  // namespace tessera::cuda
