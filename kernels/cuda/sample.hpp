// SPDX-License-Identifier: Apache-2.0
#pragma once
// The device's side of sample.

#include "runtime/base/stream.hpp"

namespace tessera::kernels {

struct SampleArgs;

namespace cuda {
void sample(const SampleArgs& args, StreamView stream);
}  // namespace cuda

}  // namespace tessera::kernels
