// SPDX-License-Identifier: Apache-2.0
#pragma once
// Table of the loops that measure memory bandwidth: a range of words on one thread.

#include <cstdint>

#include "kernels/host/dispatch.hpp"

namespace tessera::kernels::host {

struct Bandwidth {
  std::uint64_t (*read)(const std::uint64_t* x, std::int64_t n);  // all words or-ed
  void (*copy)(const std::uint64_t* x, std::uint64_t* y, std::int64_t n);
};
TESSERA_TABLE_PLAIN(Bandwidth, bandwidth)

}  // namespace tessera::kernels::host
