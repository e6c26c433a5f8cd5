// SPDX-License-Identifier: Apache-2.0
// The radix sort of sort_rows.hpp: three launches per pass.
#include "kernels/cuda/sort_rows.hpp"

#include "kernels/cuda/launch.cuh"

namespace tessera::kernels::cuda {
namespace {

/// counts[digit, tile]; one block per tile.
__global__ void __launch_bounds__(sort_threads)
    count_kernel(const std::int32_t* keys, std::int64_t rows, int pass, std::uint32_t* counts) {
  __shared__ std::uint32_t histogram[sort_digits];
  histogram[threadIdx.x] = 0;
  __syncthreads();
  const std::int64_t first = blockIdx.x * sort_tile, last = first + sort_tile < rows ? first + sort_tile : rows;
  for (std::int64_t row = first + threadIdx.x; row < last; row += sort_threads)
    atomicAdd(&histogram[sort_digit(keys[row], pass)], 1u);
  __syncthreads();
  counts[threadIdx.x * static_cast<std::int64_t>(gridDim.x) + blockIdx.x] = histogram[threadIdx.x];
}

__device__ __forceinline__ std::uint32_t warp_prefix(std::uint32_t v) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll
  for (int distance = 1; distance < 32; distance *= 2) {
    const std::uint32_t other = __shfl_up_sync(0xffffffffu, v, distance);
    if (lane >= distance) v += other;
  }
  return v;
}

constexpr int prefix_threads = 1024;

/// Exclusive prefix sum of the counts: one block; each thread sums a range.
__global__ void __launch_bounds__(prefix_threads) prefix_kernel(std::uint32_t* counts, std::int64_t n) {
  __shared__ std::uint32_t warps[prefix_threads / 32];
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
  const std::int64_t each = (n + prefix_threads - 1) / prefix_threads, begin = threadIdx.x * each;
  const std::int64_t end = begin + each < n ? begin + each : n;
  std::uint32_t sum = 0;
  for (std::int64_t i = begin; i < end; ++i) sum += counts[i];
  const std::uint32_t in_warp = warp_prefix(sum);
  if (lane == 31) warps[warp] = in_warp;
  __syncthreads();
  if (warp == 0) warps[lane] = warp_prefix(warps[lane]);
  __syncthreads();
  std::uint32_t before = (warp > 0 ? warps[warp - 1] : 0) + in_warp - sum;
  for (std::int64_t i = begin; i < end; ++i) {
    const std::uint32_t own = counts[i];
    counts[i] = before;
    before += own;
  }
}

struct Move {
  const std::int32_t *keys, *rows;  // rows: null in the first pass, where row i is i
  std::int32_t *to_keys, *to_rows;  // to_keys: null if no pass follows
  const std::uint32_t* counts;
  std::int64_t count;
  int pass;
};

__global__ void __launch_bounds__(sort_threads) move_kernel(const Move m) {
  constexpr int warps = sort_threads / 32;
  __shared__ std::uint32_t next[warps]
                               [sort_digits + 1];  // a warp's rows of a digit; the last entry: rows beyond the end
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
  for (int w = 0; w < warps; ++w) next[w][threadIdx.x] = 0;
  if (lane == 0) next[warp][sort_digits] = 0;
  __syncthreads();
  const std::int64_t first = blockIdx.x * sort_tile;
  int digit[sort_rounds];
  std::uint32_t rank[sort_rounds];  // among the warp's rows of the digit
#pragma unroll
  for (int r = 0; r < sort_rounds; ++r) {
    const std::int64_t row = first + sort_row(warp, r, lane);
    digit[r] = row < m.count ? sort_digit(m.keys[row], m.pass) : sort_digits;
    const unsigned alike = __match_any_sync(0xffffffffu, digit[r]), before = alike & ((1u << lane) - 1);
    rank[r] = next[warp][digit[r]] + __popc(before);
    __syncwarp();
    if (before == 0) next[warp][digit[r]] += __popc(alike);
    __syncwarp();  // orders memory, which a vote does not
  }
  __syncthreads();
  std::uint32_t position =
      m.counts[threadIdx.x * static_cast<std::int64_t>(gridDim.x) + blockIdx.x];  // of digit threadIdx.x
  for (int w = 0; w < warps; ++w) {
    const std::uint32_t own = next[w][threadIdx.x];
    next[w][threadIdx.x] = position;
    position += own;
  }
  __syncthreads();
#pragma unroll
  for (int r = 0; r < sort_rounds; ++r) {
    const std::int64_t row = first + sort_row(warp, r, lane);
    if (row >= m.count) continue;
    const std::uint32_t to = next[warp][digit[r]] + rank[r];
    if (m.to_keys) m.to_keys[to] = m.keys[row];
    m.to_rows[to] = m.rows ? m.rows[row] : static_cast<std::int32_t>(row);
  }
}

void run_pass(const Move& move, std::uint32_t* counts, StreamView stream) {
  const unsigned tiles = blocks_for(move.count, sort_tile);
  count_kernel<<<tiles, sort_threads, 0, stream_of(stream)>>>(move.keys, move.count, move.pass, counts);
  check_launch("sort_rows count");
  prefix_kernel<<<1, prefix_threads, 0, stream_of(stream)>>>(counts, sort_digits * static_cast<std::int64_t>(tiles));
  check_launch("sort_rows prefix");
  move_kernel<<<tiles, sort_threads, 0, stream_of(stream)>>>(move);
  check_launch("sort_rows move");
}

}  // namespace

void sort_rows_once(const std::int32_t* keys, std::int64_t rows, std::uint32_t* counts, std::int32_t* sorted,
                    StreamView stream) {
  TESSERA_ASSERT(rows > 0 && rows < (std::int64_t{1} << 31), "%ld rows", rows);
  run_pass({keys, nullptr, nullptr, sorted, counts, rows, 0}, counts, stream);
}

SortedRows sort_rows(const SortArgs& args, StreamView stream) {
  TESSERA_ASSERT(args.rows < (std::int64_t{1} << 31) && args.num_keys <= (std::int64_t{1} << 31), "%ld rows, %ld keys",
                 args.rows, args.num_keys);
  SortedRows now{args.keys, nullptr};
  if (args.rows == 0) return now;
  const SortMemory memory = sort_memory(args.workspace, args.rows);
  for (int pass = 0; pass < sort_passes(args.num_keys); ++pass) {
    const int to = pass % 2;
    run_pass({now.keys, now.rows, memory.keys[to], memory.rows[to], memory.counts, args.rows, pass}, memory.counts,
             stream);
    now = {memory.keys[to], memory.rows[to]};
  }
  return now;
}

}  // namespace tessera::kernels::cuda
