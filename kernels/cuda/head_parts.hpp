// SPDX-License-Identifier: Apache-2.0
#pragma once
// The device's side of kernels/head_parts.hpp.

#include "kernels/head_parts.hpp"

namespace tessera::kernels::cuda {

void split_heads(const HeadPartsArgs& args, StreamView stream);
void merge_heads(const HeadPartsArgs& args, StreamView stream);

}  // namespace tessera::kernels::cuda
