// SPDX-License-Identifier: Apache-2.0
#pragma once
// TraceRecorder: the spans of a run's instructions and waits.

#include <chrono>
#include <string>
#include <vector>

#include "runtime/shard/schedule.hpp"

namespace tessera::exec {

/// One span of the trace: an instruction, or a wait of the compute stream.
struct TraceSpan {
  std::string name;               // shard::instruction_name, or "wait " and the name
  int lane = 0;                   // shard::StreamId
  double begin_s = 0, end_s = 0;  // seconds since the trace began
};

class TraceRecorder {
 public:
  struct Mark {
    const shard::Schedule* schedule = nullptr;
    int instruction = -1;
    bool wait = false;
    double begin_s = 0, end_s = 0;  // of now()
  };
  /// Records from now on, `capacity` marks of each stream at most.
  void start(std::size_t capacity);
  [[nodiscard]] std::vector<TraceSpan> take();
  [[nodiscard]] bool on() const { return on_; }
  /// Called by one thread for each stream. While the recorder is off, does nothing.
  void add(const Mark& mark, shard::StreamId stream);
  /// Seconds since start().
  [[nodiscard]] double now() const { return std::chrono::duration<double>(Clock::now() - origin_).count(); }

 private:
  using Clock = std::chrono::steady_clock;
  Clock::time_point origin_ = Clock::now();
  std::vector<Mark> marks_[shard::num_streams];
  bool on_ = false;
};

}  // namespace tessera::exec
