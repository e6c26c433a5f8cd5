// SPDX-License-Identifier: Apache-2.0
#pragma once
// Collectives that send block-wise int8 (kernels/int8_blocks.hpp), over any communicator. Pointers are to memory of its
// device, where all work is in the order of `stream` (the host: host_stream), which run_on is given. A sum is an
// all-to-all of encoded chunks, which their owner decodes and adds in fp32 in the order of reduce_scatter
// (binary-counter tree over members); an all_reduce then gathers the sums, encoded once more. What members get is
// decoded from the same bytes: all have the same bits, on every transport.
//
// Error feedback: each member keeps a residual, which is added to what it encodes next and then holds what the codes
// lacked. So the sum over members of (result + residuals) equals that of (inputs + previous residuals), but for
// rounding in fp32: what one step does not send, later ones do.

#include <cstddef>
#include <span>

#include "runtime/comm/communicator.hpp"

namespace tessera::comm {

/// Bytes of staging for a sum of `members` chunks of `chunk` floats, and for a gather of them.
[[nodiscard]] std::size_t int8_sum_staging(std::size_t members, std::size_t chunk);
[[nodiscard]] std::size_t int8_gather_staging(std::size_t members, std::size_t chunk);

/// mine = this member's chunk of the sum of `full` over members. `mine` may lie in `full`. `residual`: as many floats
/// as `full`, or null: no error feedback. `staging` is aligned to 4 bytes.
void int8_reduce_scatter(Communicator& communicator, CollectiveLabel label, const float* full, float* mine,
                         std::size_t chunk, float* residual, std::span<std::byte> staging, StreamView stream);

/// sums = the sum of `source` over members, `count` floats (a multiple of size()). `sums` may be `source`. The residual
/// of this member's chunk also holds what the encoded sum lacks.
void int8_all_reduce(Communicator& communicator, CollectiveLabel label, const float* source, float* sums,
                     std::size_t count, float* residual, std::span<std::byte> staging, StreamView stream);

/// full = every member's chunk, encoded and decoded, as numbers of `dtype` (fp32, bf16 or fp16), this member's too.
/// `mine` may lie in `full`; it is overwritten then.
void int8_all_gather(Communicator& communicator, CollectiveLabel label, SourceBuffer mine, std::byte* full, DType dtype,
                     std::size_t chunk, std::span<std::byte> staging, StreamView stream);

}  // namespace tessera::comm
