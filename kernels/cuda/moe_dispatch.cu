// SPDX-License-Identifier: Apache-2.0
// MoE dispatch: a pass of the stable radix sort, one block for every 2,048 slots; its counts lie in the memory of
// Dispatch::rows, which is written last. For fewer than 256 slots, or more than 256 experts: one block per expert
// counts its slots, one thread computes the offsets, one block per expert assigns rows in the order of slots.
// Deterministic.
#include "kernels/cuda/ops.hpp"
#include "kernels/cuda/sort_rows.hpp"
#include "kernels/cuda/thread_group.cuh"
#include "kernels/moe.hpp"

namespace tessera::kernels::cuda {
namespace {

struct Slots {
  const std::int32_t* expert;
  std::int32_t *slot_of, *row_of, *offsets;
  std::int64_t slots, experts;
};

/// offsets[e + 1] = slots of expert e.
__global__ void __launch_bounds__(group_block) count_kernel(const Slots s) {
  const std::int64_t expert = blockIdx.x;
  int count = 0;
  for (std::int64_t i = threadIdx.x; i < s.slots; i += group_block) count += s.expert[i] == expert ? 1 : 0;
  count = ThreadGroup<group_block>::sum(count);
  if (threadIdx.x == 0) s.offsets[expert + 1] = count;
}

__global__ void offsets_kernel(const Slots s) {
  s.offsets[0] = 0;
  for (std::int64_t e = 0; e < s.experts; ++e) s.offsets[e + 1] += s.offsets[e];
}

__global__ void __launch_bounds__(group_block) dispatch_kernel(const Slots s) {
  __shared__ int warp_counts[group_block / 32];
  const std::int64_t expert = blockIdx.x;
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
  int next = s.offsets[expert];
  for (std::int64_t first = 0; first < s.slots; first += group_block) {
    const std::int64_t slot = first + threadIdx.x;
    const bool own = slot < s.slots && s.expert[slot] == expert;
    const unsigned votes = __ballot_sync(0xffffffffu, own);
    if (lane == 0) warp_counts[warp] = __popc(votes);
    __syncthreads();
    int before = 0, all = 0;
    for (int w = 0; w < group_block / 32; ++w) {
      before += w < warp ? warp_counts[w] : 0;
      all += warp_counts[w];
    }
    if (own) {
      const int row = next + before + __popc(votes & ((1u << lane) - 1));
      s.row_of[slot] = row;
      s.slot_of[row] = static_cast<std::int32_t>(slot);
    }
    next += all;
    __syncthreads();  // the counts have been read
  }
}

/// Offsets from the counts of the sort, which are prefix sums by expert and tile.
__global__ void __launch_bounds__(group_block) sorted_offsets_kernel(const Slots s, std::int64_t tiles) {
  const std::int64_t expert = static_cast<std::int64_t>(blockIdx.x) * group_block + threadIdx.x;
  if (expert < s.experts) s.offsets[expert] = s.row_of[expert * tiles];
  if (expert == s.experts) s.offsets[expert] = static_cast<std::int32_t>(s.slots);
}

__global__ void __launch_bounds__(group_block) rows_of_slots_kernel(const Slots s) {
  const std::int64_t row = static_cast<std::int64_t>(blockIdx.x) * group_block + threadIdx.x;
  if (row < s.slots) s.row_of[s.slot_of[row]] = static_cast<std::int32_t>(row);
}

void sort_slots(const Slots& s, StreamView stream) {
  sort_rows_once(s.expert, s.slots, reinterpret_cast<std::uint32_t*>(s.row_of), s.slot_of, stream);
  sorted_offsets_kernel<<<blocks_for(s.experts + 1, group_block), group_block, 0, stream_of(stream)>>>(
      s, sort_tiles(s.slots));
  check_launch("make_dispatch offsets");
  rows_of_slots_kernel<<<blocks_for(s.slots, group_block), group_block, 0, stream_of(stream)>>>(s);
  check_launch("make_dispatch rows");
}

}  // namespace

void make_dispatch(const TensorView& experts, const Dispatch& dispatch, StreamView stream) {
  const Slots s{data_of<std::int32_t>(experts),
                data_of<std::int32_t>(dispatch.slots),
                data_of<std::int32_t>(dispatch.rows),
                data_of<std::int32_t>(dispatch.offsets),
                experts.numel(),
                dispatch.offsets.numel() - 1};
  if (s.experts <= sort_digits && s.slots >= sort_digits * sort_tiles(s.slots) && s.slots > 0)
    return sort_slots(s, stream);
  const unsigned blocks = blocks_for(s.experts, 1);
  count_kernel<<<blocks, group_block, 0, stream_of(stream)>>>(s);
  check_launch("make_dispatch count");
  offsets_kernel<<<1, 1, 0, stream_of(stream)>>>(s);
  check_launch("make_dispatch offsets");
  dispatch_kernel<<<blocks, group_block, 0, stream_of(stream)>>>(s);
  check_launch("make_dispatch deal");
}

}  // namespace tessera::kernels::cuda
