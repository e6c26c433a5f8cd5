// SPDX-License-Identifier: Apache-2.0
#pragma once
// The device's side of argmax.

#include "runtime/base/stream.hpp"

namespace tessera::kernels {

struct ArgmaxArgs;

namespace cuda {
void argmax(const ArgmaxArgs& args, StreamView stream);
}  // namespace cuda

}  // namespace tessera::kernels
