// SPDX-License-Identifier: Apache-2.0
#pragma once
// Lengths and offsets of documents as cuDNN's attention takes them.

#include "kernels/attention.hpp"

namespace tessera::kernels::cuda {

struct DocumentArgumentsArgs {
  AttentionDocuments documents;       // on the device
  std::int64_t first = 0, count = 0;  // the entries of its list that are wanted
  std::int64_t capacity = 0;          // count at least
  AttentionShape shape;               // of the micro-batch
  /// int32, document_argument_count(capacity): lengths, then first elements in qkv, in out and in lse (tokens, nh);
  /// capacity + 1 each. What is beyond `count` has no tokens and begins after the micro-batch.
  TensorView out;
};
void write_document_arguments(const DocumentArgumentsArgs& args, StreamView stream);

}  // namespace tessera::kernels::cuda
