// SPDX-License-Identifier: Apache-2.0
#pragma once
// LaunchGraph: kernels and copies of a device's stream, captured once and issued again as one launch (a CUDA graph).

#include "runtime/base/stream.hpp"

namespace tessera {

/// Kernels and copies with their arguments as they were at capture: pointers and sizes stay, what they point to may
/// change. Copies are of pinned or device memory. On a device only; its streams are immediate.
class LaunchGraph {
 public:
  LaunchGraph() = default;
  ~LaunchGraph();
  LaunchGraph(const LaunchGraph&) = delete;
  LaunchGraph& operator=(const LaunchGraph&) = delete;

  /// What `issue` issues on `stream` is captured and does not run. It must not record or wait for events, nor allocate.
  /// The driver allocates the graph: some kilobytes a kernel. Replaces an earlier capture.
  template <class Issue>
  void capture(Stream& stream, const Issue& issue) {
    begin(stream);
    issue();
    end(stream);
  }
  [[nodiscard]] bool captured() const { return handle_ != nullptr; }
  /// Issues the work on the stream, as the captured calls did.
  void launch(Stream& stream) const;

 private:
  void begin(Stream& stream);
  void end(Stream& stream);
  void* handle_ = nullptr;
};

}  // namespace tessera
