// SPDX-License-Identifier: Apache-2.0
#pragma once
// The host's side of argmax, on the calling thread.

namespace tessera::kernels {

struct ArgmaxArgs;

namespace host {
void argmax(const ArgmaxArgs& args);
}  // namespace host

}  // namespace tessera::kernels
