// SPDX-License-Identifier: Apache-2.0
// Sums in the documented order (kernels/reduce.hpp): the binary-counter tree in registers, and sums of squares in
// blocks of 128 that are added exactly.
#include "kernels/reduce.hpp"

#include "kernels/cuda/binary_counter.cuh"
#include "kernels/cuda/exact_sum_term.hpp"
#include "kernels/cuda/ops.hpp"
#include "kernels/cuda/vector.cuh"

namespace tessera::kernels::cuda {
namespace {

constexpr int max_levels = 9, max_parts = 1 << (max_levels - 1);

template <class T>
struct Parts {
  const T* part[max_parts];
  int count;
};

/// One thread sums N elements by the binary counter.
template <int N, class T>
__global__ void __launch_bounds__(256)
    sum_tree_kernel(const __grid_constant__ Parts<T> parts, float* out, std::int64_t n) {
  const std::int64_t at = (static_cast<std::int64_t>(blockIdx.x) * 256 + threadIdx.x) * N;
  if (at >= n) return;
  float sum[N];
  binary_counter_sum<N, max_levels>(parts.count, sum, [&](int i, float(&v)[N]) { load<N>(parts.part[i] + at, v); });
  store<N>(out + at, sum);
}

constexpr int lanes = 16, squares_block = 256, accumulators = squares_block / lanes;

/// Sixteen threads sum a block of 128 elements as the host's lanes do, and add it to their own digits. Digits are added
/// as integers, so the result depends neither on the grid nor on the order of the last additions.
__global__ void __launch_bounds__(squares_block)
    squares_kernel(const float* x, std::int64_t blocks, std::int64_t* counters) {
  __shared__ std::int64_t digits[accumulators][ExactSum::num_counters];
  const int lane = static_cast<int>(threadIdx.x) % lanes, own = static_cast<int>(threadIdx.x) / lanes;
  for (int i = lane; i < static_cast<int>(ExactSum::num_counters); i += lanes) digits[own][i] = 0;
  __syncwarp();  // orders memory, which a shuffle does not
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * accumulators;
  const std::int64_t rounds = (blocks + step - 1) / step;  // the same for all threads: warps shuffle together
  for (std::int64_t round = 0; round < rounds; ++round) {
    const std::int64_t block = round * step + static_cast<std::int64_t>(blockIdx.x) * accumulators + own;
    double sum = 0;
    if (block < blocks) {
#pragma unroll
      for (int i = 0; i < static_cast<int>(norm_block); i += lanes) {
        const double v = static_cast<double>(x[block * static_cast<std::int64_t>(norm_block) + i + lane]);
        sum = cuda::add(sum, mul(v, v));
      }
    }
#pragma unroll
    for (int width = lanes / 2; width > 0; width /= 2) sum = cuda::add(sum, __shfl_xor_sync(0xffffffffu, sum, width));
    if (block < blocks && lane < 3) {
      const ExactSumTerm term = exact_sum_term(sum);
      digits[own][term.digit + lane] += lane == 0 ? term.part[0] : lane == 1 ? term.part[1] : term.part[2];
    }
    __syncwarp();  // orders memory, which a shuffle does not
  }
  __syncthreads();
  for (int i = static_cast<int>(threadIdx.x); i < static_cast<int>(ExactSum::num_counters); i += squares_block) {
    std::int64_t total = 0;
    for (int a = 0; a < accumulators; ++a) total += digits[a][i];
    if (total != 0)
      atomicAdd(reinterpret_cast<unsigned long long*>(counters + i), static_cast<unsigned long long>(total));
  }
}

/// `parts` point to numbers of T, which are widened as they are read.
template <class T, class Pointers>
void run_sum_tree(const Pointers& from, float* out, std::size_t count, StreamView stream) {
  TESSERA_ASSERT(from.size() <= max_parts, "%zu parts on a device, which takes %d", from.size(), max_parts);
  if (count == 0) return;
  constexpr int vector = vector_length<T>;
  Parts<T> parts{};
  parts.count = static_cast<int>(from.size());
  bool vectors = aligned16(out) && count % vector == 0;
  for (std::size_t i = 0; i < from.size(); ++i) {
    parts.part[i] = static_cast<const T*>(from[i]);
    vectors = vectors && aligned16(from[i]);
  }
  const auto n = static_cast<std::int64_t>(count);
  if (vectors) sum_tree_kernel<vector><<<blocks_for(n, 256 * vector), 256, 0, stream_of(stream)>>>(parts, out, n);
  else sum_tree_kernel<1><<<blocks_for(n, 256), 256, 0, stream_of(stream)>>>(parts, out, n);
  check_launch("sum_tree");
}

template <class T>
void add_wider(const void* x, float* y, std::int64_t count, StreamView stream) {
  for_each<vector_length<T>>(Binary<sum, T, float>{static_cast<const T*>(x), y, y}, count, {x, y}, stream,
                             "add_16bit_to");
}

}  // namespace

void sum_tree(const SumTreeArgs& args, StreamView stream) {
  run_sum_tree<float>(args.parts, args.out, args.count, stream);
}

void sum_tree_16bit(const SumTree16BitArgs& args, StreamView stream) {
  if (args.dtype == DType::bf16) run_sum_tree<bf16>(args.parts, args.out, args.count, stream);
  else run_sum_tree<f16>(args.parts, args.out, args.count, stream);
}

void add_to(const float* x, float* y, std::size_t count, StreamView stream) {
  for_each<4>(Binary<sum, float>{x, y, y}, static_cast<std::int64_t>(count), {x, y}, stream, "add_to");
}

void add_16bit_to(const void* x, DType dtype, float* y, std::size_t count, StreamView stream) {
  const auto n = static_cast<std::int64_t>(count);
  if (dtype == DType::bf16) add_wider<bf16>(x, y, n, stream);
  else add_wider<f16>(x, y, n, stream);
}

void sum_of_squares(const float* x, std::size_t count, std::int64_t* counters, StreamView stream) {
  static_assert(norm_block == 128);
  const auto blocks = static_cast<std::int64_t>(count / norm_block);
  if (blocks == 0) return;
  constexpr std::int64_t most = 1024;  // blocks of threads: about eight per multiprocessor
  const std::int64_t wanted = (blocks + accumulators - 1) / accumulators;
  squares_kernel<<<static_cast<unsigned>(wanted < most ? wanted : most), squares_block, 0, stream_of(stream)>>>(
      x, blocks, counters);
  check_launch("sum_of_squares");
}

}  // namespace tessera::kernels::cuda
