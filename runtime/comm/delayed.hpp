#pragma once
// A communicator that is slow on purpose: for showing overlap, and for finding missing waits.

#include <memory>

#include "runtime/comm/communicator.hpp"

namespace tessera {

struct Delay {
  double gather_s = 0, reduce_s = 0, norm_s = 0;  // slept before the collective of that kind
  double per_byte_s = 0;                          // and by size
  void (*disturb)() = nullptr;                    // called before each: what a test wants to be noticed
};

/// Sleeps, then does what `inner` does. Takes ownership.
[[nodiscard]] std::unique_ptr<Communicator> delayed(std::unique_ptr<Communicator> inner, const Delay& delay);

}  // namespace tessera
