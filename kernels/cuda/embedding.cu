// Embedding on a device. Backward has no atomics and sorts nothing: the first row of an id owns it and adds the later rows of that id in token order, which
// are the host's sums to the bit.
#include "kernels/embedding.hpp"

#include "kernels/cuda/norm_rows.cuh"
#include "kernels/cuda/ops.hpp"

namespace tessera::kernels::cuda {
namespace {

template <class T>
struct Forward {
  const std::int32_t *ids, *positions;  // positions: null where row r is at r mod tokens
  const T *table, *positions_table;     // positions_table: null where there is none
  T* y;
  std::int64_t tokens, channels;
  template <int N>
  __device__ void run(std::int64_t at) const {  // a run stays in a row: channels is a multiple of N
    const std::int64_t row = at / channels, c = at % channels;
    float v[N], p[N];
    load<N>(table + ids[row] * channels + c, v);
    if (positions_table) {
      load<N>(positions_table + (positions ? positions[row] : row % tokens) * channels + c, p);
#pragma unroll
      for (int i = 0; i < N; ++i) v[i] += p[i];
    }
    store<N>(y + at, v);
  }
};

constexpr int owner_threads = 256, ids_per_thread = 4, ids_per_round = owner_threads * ids_per_thread;

template <class T, class G>
struct Scatter {
  const std::int32_t* ids;  // (rows)
  const T* dy;              // (rows, channels)
  G* table;
  std::int64_t rows, channels;
  bool accumulate;
};

/// Whether an earlier row has this row's id; the answer is the block's.
template <class T, class G>
__device__ bool has_owner(const Scatter<T, G>& s, std::int64_t row, std::int32_t id) {
  for (std::int64_t first = 0; first < row; first += ids_per_round) {
    bool found = false;
#pragma unroll
    for (int i = 0; i < ids_per_thread; ++i) {
      const std::int64_t at = first + i * owner_threads + threadIdx.x;
      found = found || (at < row && s.ids[at] == id);
    }
    if (__syncthreads_or(found ? 1 : 0) != 0) return true;
  }
  return false;
}

/// Threads that found a row, in order, to `list`; how many they are.
__device__ int list_rows(bool found, std::int32_t* list, int* warp_counts) {
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
  const unsigned votes = __ballot_sync(0xffffffffu, found);
  if (lane == 0) warp_counts[warp] = __popc(votes);
  __syncthreads();
  int before = 0, all = 0;
  for (int w = 0; w < owner_threads / 32; ++w) {
    before += w < warp ? warp_counts[w] : 0;
    all += warp_counts[w];
  }
  if (found) list[before + __popc(votes & ((1u << lane) - 1))] = static_cast<std::int32_t>(threadIdx.x);
  __syncthreads();
  return all;
}

/// A block per row; only owners work. Sums of its columns stay with each thread, in shared memory.
template <class T, class G>
__global__ void __launch_bounds__(owner_threads) scatter_kernel(const Scatter<T, G> s) {
  extern __shared__ float sums[];  // (channels)
  __shared__ std::int32_t list[owner_threads];
  __shared__ int warp_counts[owner_threads / 32];
  const std::int64_t row = blockIdx.x;
  const std::int32_t id = s.ids[row];
  if (has_owner(s, row, id)) return;
  G* const out = s.table + id * s.channels;
  for (std::int64_t c = threadIdx.x; c < s.channels; c += owner_threads) sums[c] = s.accumulate ? to_float(out[c]) : 0.0F;
  for (std::int64_t first = row; first < s.rows; first += owner_threads) {
    const std::int64_t at = first + threadIdx.x;
    const bool found = at < s.rows && s.ids[at] == id;
    const int count = list_rows(found, list, warp_counts);
    for (int i = 0; i < count; ++i) {
      const T* const from = s.dy + (first + list[i]) * s.channels;
      for (std::int64_t c = threadIdx.x; c < s.channels; c += owner_threads) sums[c] += to_float(from[c]);
    }
    __syncthreads();  // the list has been read
  }
  for (std::int64_t c = threadIdx.x; c < s.channels; c += owner_threads) out[c] = rounded<G>(sums[c]);
}

/// Row r of a table of positions is the sum of rows r, r + tokens, … of dy.
template <class T, class G>
__global__ void __launch_bounds__(256) positions_kernel(const Scatter<T, G> s, std::int64_t tokens) {
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * 256 + threadIdx.x;
  if (i >= tokens * s.channels) return;
  float sum = s.accumulate ? to_float(s.table[i]) : 0.0F;
  for (std::int64_t at = i; at < s.rows * s.channels; at += tokens * s.channels) sum += to_float(s.dy[at]);
  s.table[i] = rounded<G>(sum);
}

void clear(const TensorView& table, StreamView stream) {
  check(cudaMemsetAsync(table.data, 0, table.nbytes(), stream_of(stream)), "clearing a gradient table");
}

template <class T, class G>
void scatter(const Scatter<T, G>& s, StreamView stream) {
  const auto bytes = static_cast<std::size_t>(s.channels) * sizeof(float);
  TESSERA_ASSERT(bytes <= 200 * 1024, "rows of %lld", static_cast<long long>(s.channels));
  if (bytes > 40 * 1024)
    check(cudaFuncSetAttribute(scatter_kernel<T, G>, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(bytes)),
          "shared memory");
  scatter_kernel<T, G><<<blocks_for(s.rows, 1), owner_threads, bytes, stream_of(stream)>>>(s);
  check_launch("embedding_backward");
}

}  // namespace

void embedding_forward(const EmbeddingForwardArgs& args, StreamView stream) {
  by_element(args.y.dtype, [&](auto zero) {
    using T = decltype(zero);
    const Forward<T> op{data_of<std::int32_t>(args.ids),
                        args.positions ? data_of<std::int32_t>(args.positions) : nullptr,
                        data_of<T>(args.tokens_table),
                        args.positions_table ? data_of<T>(args.positions_table) : nullptr,
                        data_of<T>(args.y),
                        args.ids.shape[1],
                        args.tokens_table.shape[1]};
    // Rows that are no multiple of a vector go element by element.
    const void* const odd = op.channels % vector_length<T> == 0 ? nullptr : reinterpret_cast<const void*>(1);
    for_each<vector_length<T>>(op, args.y.numel(), {op.table, op.positions_table, op.y, odd}, stream, "embedding_forward");
  });
}

void embedding_backward(const EmbeddingBackwardArgs& args, StreamView stream) {
  const std::int64_t tokens = args.ids.shape[1], rows = args.ids.numel(), channels = args.dtokens_table.shape[1];
  const TensorView& dpositions = args.dpositions_table;
  by_element(args.dy.dtype, [&](auto zero) {
    using T = decltype(zero);
    by_gradient<T>(args.dtokens_table.dtype, [&](auto gradient) {
      using G = decltype(gradient);
      Scatter<T, G> s{data_of<std::int32_t>(args.ids), data_of<T>(args.dy), data_of<G>(args.dtokens_table), rows, channels,
                      args.accumulate_tokens};
      if (!args.accumulate_tokens) clear(args.dtokens_table, stream);
      if (rows > 0) scatter(s, stream);
      if (!dpositions) return;
      TESSERA_ASSERT(dpositions.dtype == args.dtokens_table.dtype, "positions of %s", name_of(dpositions.dtype));
      s.table = data_of<G>(dpositions);
      s.accumulate = args.accumulate_positions;
      if (!args.accumulate_positions) clear(dpositions, stream);
      if (rows == 0) return;
      if (args.positions) {
        s.ids = data_of<std::int32_t>(args.positions);
        return scatter(s, stream);
      }
      positions_kernel<T, G><<<blocks_for(tokens * channels, 256), 256, 0, stream_of(stream)>>>(s, tokens);
      check_launch("embedding_backward positions");
    });
  });
}

}  // namespace tessera::kernels::cuda
