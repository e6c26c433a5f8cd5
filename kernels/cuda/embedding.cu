// SPDX-License-Identifier: Apache-2.0
// Embedding on a device. Backward sorts rows by id (stable, so rows of an id stay in token order) and adds each id's
// rows in that order: the host's bits, without atomics, in time linear in the rows. Columns are added in parallel; an
// id with many rows costs their loads, eight in flight.
#include "kernels/embedding.hpp"

#include "kernels/cuda/ops.hpp"
#include "kernels/cuda/sort_rows.hpp"
#include "kernels/cuda/vector.cuh"

namespace tessera::kernels::cuda {
namespace {

template <class T>
struct EmbeddingForward {
  const std::int32_t *ids, *positions;  // positions: null if row r has position r mod tokens
  const T *table, *positions_table;     // positions_table: or null
  T* y;
  std::int64_t tokens, channels, first_id, num_rows;  // num_rows: of the table
  template <int N>
  __device__ void run(std::int64_t at) const {  // a vector stays in a row: channels is a multiple of N
    const std::int64_t row = at / channels, c = at % channels, id = ids[row] - first_id;
    float v[N] = {}, p[N];
    const bool has = id >= 0 && id < num_rows;
    if (has) load<N>(table + id * channels + c, v);
    if (positions_table && has) {
      load<N>(positions_table + (positions ? positions[row] : row % tokens) * channels + c, p);
#pragma unroll
      for (int i = 0; i < N; ++i) v[i] += p[i];
    }
    store<N>(y + at, v);
  }
};

template <class T, class G>
struct Gradient {
  const T* dy;  // (rows, channels)
  G* table;
  std::int64_t rows, channels;
  bool accumulate;
  std::int64_t first_key, num_keys;  // of the table's rows
};

constexpr int run_warps = 8, rows_in_flight = 8;

/// Adds rows of dy in order, all loaded before the first is added; lane i + r of the warp holds the index of the r-th.
template <int Rows, int N, class T>
__device__ __forceinline__ void add_rows(const T* dy, std::int64_t channels, std::int32_t own, int i, float (&sum)[N]) {
  float v[Rows][N];
#pragma unroll
  for (int r = 0; r < Rows; ++r) load<N>(dy + __shfl_sync(0xffffffffu, own, i + r) * channels, v[r]);
#pragma unroll
  for (int r = 0; r < Rows; ++r)
#pragma unroll
    for (int k = 0; k < N; ++k) sum[k] += v[r][k];
}

/// One warp per sorted row and range of columns; the warp of the first row of a key adds the rows of that key in order.
/// Lanes hold N columns each.
template <int N, class T, class G>
__global__ void __launch_bounds__(32 * run_warps) add_runs_kernel(const Gradient<T, G> g, const SortedRows sorted) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const std::int64_t first = static_cast<std::int64_t>(blockIdx.x) * run_warps + threadIdx.x / 32;
  if (first >= g.rows) return;  // whole warps
  const std::int32_t key = sorted.keys[first];
  if (key < g.first_key || key >= g.first_key + g.num_keys) return;
  if (first > 0 && sorted.keys[first - 1] == key) return;
  const std::int64_t wanted = (static_cast<std::int64_t>(blockIdx.y) * 32 + lane) * N;
  const std::int64_t column =
      wanted < g.channels ? wanted : g.channels - N;  // lanes beyond the end add the last columns and discard them
  const T* const dy = g.dy + column;
  G* const out = g.table + (key - g.first_key) * g.channels + column;
  float sum[N] = {};
  if (g.accumulate) load<N>(out, sum);
  for (int count = 32, done = 0; count == 32; done += 32) {
    const std::int64_t at = first + done + lane;
    const bool same = at < g.rows && sorted.keys[at] == key;
    const std::int32_t own = same ? sorted.rows[at] : 0;
    count = __popc(__ballot_sync(0xffffffffu, same));
    int i = 0;
    for (; i + rows_in_flight <= count; i += rows_in_flight) add_rows<rows_in_flight, N>(dy, g.channels, own, i, sum);
    for (; i < count; ++i) add_rows<1, N>(dy, g.channels, own, i, sum);
  }
  if (wanted < g.channels) store<N>(out, sum);
}

/// Row r of a table of positions is the sum of rows r, r + tokens, … of dy.
template <class T, class G>
__global__ void __launch_bounds__(256) positions_kernel(const Gradient<T, G> g, std::int64_t tokens) {
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * 256 + threadIdx.x;
  if (i >= tokens * g.channels) return;
  float sum = g.accumulate ? to_float(g.table[i]) : 0.0F;
  for (std::int64_t at = i; at < g.rows * g.channels; at += tokens * g.channels) sum += to_float(g.dy[at]);
  g.table[i] = rounded<G>(sum);
}

template <int N, class T, class G>
void add_runs(const Gradient<T, G>& g, const SortedRows& sorted, StreamView stream) {
  const dim3 grid(blocks_for(g.rows, run_warps), blocks_for(g.channels, 32 * N));
  add_runs_kernel<N, T, G><<<grid, 32 * run_warps, 0, stream_of(stream)>>>(g, sorted);
  check_launch("embedding_backward");
}

/// Adds the rows of dy to the rows `keys` (rows) of a table.
template <class T, class G>
void scatter(const Gradient<T, G>& g, const SortArgs& keys, StreamView stream) {
  const SortedRows sorted = sort_rows(keys, stream);
  constexpr int n = vector_length<T, G>;
  if (g.channels % n == 0 && aligned16(g.dy) && aligned16(g.table)) add_runs<n>(g, sorted, stream);
  else add_runs<1>(g, sorted, stream);
}

void clear(const TensorView& table, StreamView stream) {
  check(cudaMemsetAsync(table.data, 0, table.nbytes(), stream_of(stream)), "clearing a gradient table");
}

}  // namespace

void embedding_forward(const EmbeddingForwardArgs& args, StreamView stream) {
  dispatch_dtype(args.y.dtype, [&]<class T>(T) {
    const EmbeddingForward<T> op{data_of<std::int32_t>(args.ids),
                                 args.positions ? data_of<std::int32_t>(args.positions) : nullptr,
                                 data_of<T>(args.tokens_table),
                                 args.positions_table ? data_of<T>(args.positions_table) : nullptr,
                                 data_of<T>(args.y),
                                 args.ids.shape[1],
                                 args.tokens_table.shape[1],
                                 args.first_id,
                                 args.tokens_table.shape[0]};
    // Rows that are not a multiple of a vector: element by element.
    const void* const odd = op.channels % vector_length<T> == 0 ? nullptr : reinterpret_cast<const void*>(1);
    for_each<vector_length<T>>(op, args.y.numel(), {op.table, op.positions_table, op.y, odd}, stream,
                               "embedding_forward");
  });
}

void embedding_backward(const EmbeddingBackwardArgs& args, StreamView stream) {
  const std::int64_t tokens = args.ids.shape[1], rows = args.ids.numel(), channels = args.dy.shape[2];
  const TensorView &dtokens = args.dtokens_table, &dpositions = args.dpositions_table;
  dispatch_dtype(args.dy.dtype, [&]<class T>(T) {
    if (dtokens)
      dispatch_gradient_dtype<T>(dtokens.dtype, [&]<class G>(G) {
        const Gradient<T, G> g{data_of<T>(args.dy), data_of<G>(dtokens), rows, channels, args.accumulate_tokens,
                               args.first_id,       dtokens.shape[0]};
        const std::int64_t num_ids = args.num_ids > 0 ? args.num_ids : dtokens.shape[0];
        if (!args.accumulate_tokens) clear(dtokens, stream);
        if (rows > 0) scatter(g, {data_of<std::int32_t>(args.ids), rows, num_ids, args.workspace.data}, stream);
      });
    if (!dpositions) return;
    dispatch_gradient_dtype<T>(dpositions.dtype, [&]<class G>(G) {
      const Gradient<T, G> p{data_of<T>(args.dy), data_of<G>(dpositions), rows, channels, args.accumulate_positions, 0,
                             dpositions.shape[0]};
      if (!args.accumulate_positions) clear(dpositions, stream);
      if (rows == 0) return;
      if (args.positions)
        return scatter(p, {data_of<std::int32_t>(args.positions), rows, dpositions.shape[0], args.workspace.data},
                       stream);
      positions_kernel<T, G><<<blocks_for(tokens * channels, 256), 256, 0, stream_of(stream)>>>(p, tokens);
      check_launch("embedding_backward positions");
    });
  });
}

std::size_t embedding_backward_workspace(std::int64_t rows) { return sort_workspace(rows); }

}  // namespace tessera::kernels::cuda
