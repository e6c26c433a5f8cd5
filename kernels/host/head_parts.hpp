// SPDX-License-Identifier: Apache-2.0
#pragma once
// The host's side of kernels/head_parts.hpp.

#include "kernels/head_parts.hpp"

namespace tessera::kernels::host {

void split_heads(const HeadPartsArgs& args);
void merge_heads(const HeadPartsArgs& args);

}  // namespace tessera::kernels::host
