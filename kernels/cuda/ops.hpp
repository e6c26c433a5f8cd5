// SPDX-License-Identifier: Apache-2.0
#pragma once
// The device's side of every operation. kernels/<op>.cpp has checked shapes and dispatches here. Kernels are launched
// on the stream and do not wait for it. Pointers are device memory, scalars too. fp32, bf16 and fp16; statistics are
// fp32; an fp64 tensor is refused. What differs from the host's side:
//   adamw, adamw_8bit, sgd, normals, balance_*   the same bits as the host's
//   sum_tree*, add_to, add_16bit_to       the same bits as the host's; sum_tree takes at most 256 parts
//   accumulate_norm, carry_sums           the same integers as the host's
//   sum_of_squares                        adds to the int64 counters of an ExactSum: the same integers as the host's
//   gemm                                  cuBLASLt; up to 16 rows times Wᵀ: our kernel
//   grouped_gemm, grouped_gemm_gradient   our kernels: cuBLASLt needs the groups' sizes on the host
//   cache_append, cached_attention        a position outside the cache is not written, and read as the cache's last
//   linear_cross_entropy                  logits of a block of rows over the whole vocabulary, then one kernel that
//                                         computes loss and gradient in place; a target outside the vocabulary makes
//                                         the loss NaN; of a part of a vocabulary, infinite
//   preference_loss, labelled_loss, sum_sequences, match_sorted
//                                         sums over the tokens of a sequence by a tree of 256 threads

#include "kernels/operations.hpp"

namespace tessera::kernels {

namespace cuda {

#define TESSERA_DECLARE(name, Args, ...) void name(const Args& args, StreamView stream);
TESSERA_OPERATIONS(TESSERA_DECLARE)
#undef TESSERA_DECLARE
#define TESSERA_DECLARE(name, ...) void name(__VA_ARGS__, StreamView stream);
TESSERA_OTHER_OPERATIONS(TESSERA_DECLARE)
#undef TESSERA_DECLARE

void sum_of_squares(const float* x, std::size_t count, std::int64_t* counters, StreamView stream);

[[nodiscard]] std::size_t embedding_backward_workspace(std::int64_t rows);
[[nodiscard]] std::size_t attention_forward_workspace(const AttentionShape& shape);
[[nodiscard]] std::size_t attention_backward_workspace(const AttentionShape& shape);
[[nodiscard]] std::size_t cached_attention_workspace(const AttentionShape& shape);
[[nodiscard]] std::size_t linear_cross_entropy_workspace(std::int64_t rows, std::int64_t vocab, DType dtype);

}  // namespace cuda
}  // namespace tessera::kernels
