// SPDX-License-Identifier: Apache-2.0
#pragma once
// Table of the normal initializer; one thread.

#include <cstdint>

#include "kernels/host/dispatch.hpp"

namespace tessera::kernels::host {

struct Init {
  /// Elements [4·first, 4·(first + groups)) of the sequence of `key`, times std (defined in kernels/init.hpp).
  void (*normal)(std::uint64_t key, std::uint64_t first, std::int64_t groups, double std, float* out);
};
TESSERA_TABLE_PLAIN(Init, init)

}  // namespace tessera::kernels::host
