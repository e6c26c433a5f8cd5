// SPDX-License-Identifier: Apache-2.0
#pragma once
// The device's side of rope_at_positions.

#include "runtime/base/stream.hpp"

namespace tessera::kernels {

struct RopeTableArgs;
struct RopeArgs;

namespace cuda {
void rope_at_positions(const RopeTableArgs& table, const RopeArgs& args, StreamView stream);
}  // namespace cuda

}  // namespace tessera::kernels
