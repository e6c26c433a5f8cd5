// SPDX-License-Identifier: Apache-2.0
#pragma once
// The device's side of block-wise int8: the same bits as the host's.

#include "runtime/base/stream.hpp"

namespace tessera::kernels {

struct EncodeInt8Args;
struct DecodeInt8Args;
struct SumTreeInt8Args;

namespace cuda {

void encode_int8(const EncodeInt8Args& args, StreamView stream);
void decode_int8(const DecodeInt8Args& args, StreamView stream);
void sum_tree_int8(const SumTreeInt8Args& args, StreamView stream);

}  // namespace cuda
}  // namespace tessera::kernels
