// SPDX-License-Identifier: Apache-2.0
#pragma once
// A communicator with artificial delays: tests use it to show overlap and to find missing waits.

#include <memory>

#include "runtime/comm/communicator.hpp"

namespace tessera {

struct Delay {
  double gather_s = 0, reduce_s = 0, norm_s = 0;  // slept before each collective of that kind
  double per_byte_s = 0;                          // and in proportion to its bytes
  void (*disturb)() = nullptr;                    // called before each collective, for tests
};

/// Takes ownership of `inner`.
[[nodiscard]] std::unique_ptr<Communicator> delayed(std::unique_ptr<Communicator> inner, const Delay& delay);

}  // namespace tessera
