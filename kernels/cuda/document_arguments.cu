// SPDX-License-Identifier: Apache-2.0
// Lengths and offsets of documents, a thread for each of them.
#include "kernels/cuda/document_arguments.hpp"

#include "kernels/cuda/launch.cuh"

namespace tessera::kernels::cuda {
namespace {

constexpr int argument_threads = 128;

struct DocumentList {
  const std::int32_t *starts, *lengths;  // of the wanted entries
  std::int32_t count, capacity, end;     // end: the tokens of the micro-batch
  std::int32_t qkv_width, out_width, lse_width;
};

__global__ void __launch_bounds__(argument_threads) document_arguments_kernel(DocumentList list, std::int32_t* out) {
  const auto i = static_cast<std::int32_t>(blockIdx.x * argument_threads + threadIdx.x);
  if (i > list.capacity) return;
  const std::int32_t stride = list.capacity + 1, start = i < list.count ? list.starts[i] : list.end;
  out[i] = i < list.count ? list.lengths[i] : 0;
  out[stride + i] = start * list.qkv_width;
  out[2 * stride + i] = start * list.out_width;
  out[3 * stride + i] = start * list.lse_width;
}

}  // namespace

void write_document_arguments(const DocumentArgumentsArgs& args, StreamView stream) {
  const AttentionShape& s = args.shape;
  const DocumentList list{.starts = data_of<std::int32_t>(args.documents.starts) + args.first,
                          .lengths = data_of<std::int32_t>(args.documents.lengths) + args.first,
                          .count = static_cast<std::int32_t>(args.count),
                          .capacity = static_cast<std::int32_t>(args.capacity),
                          .end = static_cast<std::int32_t>(s.batch * s.tokens),
                          .qkv_width = static_cast<std::int32_t>((s.heads + 2 * s.kv_heads) * s.head_dim),
                          .out_width = static_cast<std::int32_t>(s.heads * s.head_dim),
                          .lse_width = static_cast<std::int32_t>(s.heads)};
  document_arguments_kernel<<<blocks_for(args.capacity + 1, argument_threads), argument_threads, 0,
                              stream_of(stream)>>>(list, data_of<std::int32_t>(args.out));
  check_launch("write_document_arguments");
}

}  // namespace tessera::kernels::cuda
