// SPDX-License-Identifier: Apache-2.0
#include "models/embedding_branch.hpp"

#include "kernels/embedding.hpp"
#include "kernels/gemm.hpp"
#include "models/scratch_allocator.hpp"
#include "models/tensor_split.hpp"

namespace tessera::models {

namespace {

/// Row k of an (r, n) matrix, under another shape of n elements.
TensorView row_as(const TensorView& matrix, std::int64_t k, const Shape& shape) {
  return matrix.rows(k, 1).reshape(shape);
}

/// The same of A or its gradient, as a table of one column.
TensorView table_of(const TensorView& a, std::int64_t k) { return row_as(a, k, {a.shape[1], 1}); }

}  // namespace

void EmbeddingBranch::split(const TensorSplit& over) {
  vocabulary_ = over.vocabulary(vocabulary_.vocab);
  over.divide_vocabulary(at_.a, 1);
}

EmbeddingBranch::Scratch EmbeddingBranch::scratch(const TensorView& workspace, std::int64_t rows, DType dtype,
                                                  Device device) const {
  ScratchAllocator allocator(workspace);
  Scratch s;
  s.low = allocator.take(dtype, {rank_, rows});
  s.lookup = allocator.take_bytes(kernels::embedding_backward_workspace(rows, device));
  return s;
}

std::size_t EmbeddingBranch::workspace_bytes(std::int64_t rows, DType dtype, Device device) const {
  return bytes_of([&](ScratchAllocator& allocator) {
    (void)allocator.take(dtype, {rank_, rows});
    (void)allocator.take_bytes(kernels::embedding_backward_workspace(rows, device));
  });
}

void EmbeddingBranch::look_up(const Args& args, const TensorView& low) const {
  const TensorView& a = at(args.params, at_.a);
  for (std::int64_t k = 0; k < rank_; ++k)
    kernels::embedding_forward({.ids = args.ids,
                                .tokens_table = vocabulary_.own(table_of(a, k), args.tensor_rank),
                                .positions_table = {},
                                .positions = {},
                                .y = row_as(low, k, {args.ids.shape[0], args.ids.shape[1], 1}),
                                .first_id = vocabulary_.of(args.tensor_rank).first},
                               args.stream);
}

void EmbeddingBranch::forward(const Args& args) const {
  const std::int64_t rows = args.ids.numel();
  if (rows == 0) return;
  const Scratch w = scratch(args.workspace, rows, args.y.dtype, args.y.device);
  look_up(args, w.low);
  kernels::gemm({.a = w.low,
                 .b = at(args.params, at_.b),
                 .c = args.y.reshape({rows, args.y.shape[2]}),
                 .trans_a = true,
                 .trans_b = true,
                 .alpha = scale_,
                 .beta = 1},
                args.stream);
}

void EmbeddingBranch::backward(const Args& args) const {
  const std::int64_t rows = args.ids.numel();
  if (rows == 0) {  // an empty micro-batch
    for (const int p : {at_.a, at_.b})
      if (args.grads[p] && !args.grads.adds(p)) clear(args.grads[p], args.stream);
    return;
  }
  const Scratch w = scratch(args.workspace, rows, args.y.dtype, args.y.device);
  const TensorView dy = args.y.reshape({rows, args.y.shape[2]});
  const TensorView &da = args.grads[at_.a], &db = args.grads[at_.b];
  if (db) {  // dB = s·dyᵀ·lowᵀ
    look_up(args, w.low);
    kernels::gemm({.a = dy,
                   .b = w.low,
                   .c = db,
                   .trans_a = true,
                   .trans_b = true,
                   .alpha = scale_,
                   .beta = args.grads.adds(at_.b) ? 1.0 : 0.0},
                  args.stream);
  }
  if (!da) return;
  // dlow = s·Bᵀ·dyᵀ
  kernels::gemm({.a = at(args.params, at_.b), .b = dy, .c = w.low, .trans_a = true, .trans_b = true, .alpha = scale_},
                args.stream);
  const bool adds = args.grads.adds(at_.a);
  for (std::int64_t k = 0; k < rank_; ++k)
    kernels::embedding_backward(
        {.ids = args.ids,
         .dy = row_as(w.low, k, {args.ids.shape[0], args.ids.shape[1], 1}),
         .dtokens_table = vocabulary_.own_gradient(table_of(da, k), args.tensor_rank, adds, args.stream),
         .accumulate_tokens = adds,
         .dpositions_table = {},
         .accumulate_positions = false,
         .workspace = w.lookup,
         .first_id = vocabulary_.of(args.tensor_rank).first,
         .num_ids = vocabulary_.vocab},
        args.stream);
}

}  // namespace tessera::models
