// SPDX-License-Identifier: Apache-2.0
// Attention on a device: selects the kernel, and computes delta for backward.
#include "kernels/attention.hpp"

#include "kernels/cuda/attention_call.cuh"
#include "kernels/cuda/ops.hpp"
#include "kernels/cuda/thread_group.cuh"
#include "kernels/cuda/vector.cuh"

namespace tessera::kernels::cuda {
namespace {

constexpr std::int64_t max_grid = 65535;  // batch and heads are the grid's second and third dimensions

/// delta = Σ over a row of dout·out: a warp per (token, head).
template <class T>
__global__ void __launch_bounds__(group_block) delta_kernel(const AttentionCall<T> c, float* delta) {
  const std::int64_t index = ThreadGroup<32>::index(), rows = c.map.batch * c.map.tokens * c.map.heads;
  if (index >= rows) return;
  const std::int64_t head = index % c.map.heads, row = index / c.map.heads, b = row / c.map.tokens,
                     t = row % c.map.tokens;
  const std::int64_t at = c.map.out(b, head, t);
  float sum = 0;
  for (std::int64_t i = ThreadGroup<32>::lane(); i < c.map.head_dim; i += 32)
    sum = fmaf(to_float(c.out[at + i]), to_float(c.dout[at + i]), sum);
  sum = warp_sum(sum);
  if (ThreadGroup<32>::lane() == 0) delta[c.map.lse(b, head, t)] = sum;
}

/// dsink = -Σ over rows of exp(sink - lse)·delta: a block per head, its threads' sums by a fixed tree.
template <class T, class G>
__global__ void __launch_bounds__(group_block) sinks_kernel(const AttentionCall<T> c, G* dsinks, bool accumulate) {
  const std::int64_t head = blockIdx.x, rows = c.map.batch * c.map.tokens;
  const float sink = to_float(c.sinks[head]);
  float sum = 0;
  for (std::int64_t i = ThreadGroup<group_block>::lane(); i < rows; i += group_block) {
    const std::int64_t at = c.map.lse(i / c.map.tokens, head, i % c.map.tokens);
    sum = fmaf(-expf(sink - c.lse[at]), c.delta[at], sum);
  }
  sum = ThreadGroup<group_block>::sum(sum);
  if (threadIdx.x == 0) dsinks[head] = rounded<G>(accumulate ? to_float(dsinks[head]) + sum : sum);
}

template <class T>
HeadRowsOf<T> rows_of(const HeadRows& heads, std::int64_t tokens, std::int64_t head_dim) {
  return {data_of<std::remove_const_t<T>>(heads.data), heads.pitch, tokens, head_dim};
}
template <class T>
bool are_vectors(const HeadRowsOf<T>& rows) {
  return aligned16(rows.data) && rows.pitch % chunk_elements == 0;
}

template <class T>
AttentionCall<T> call_of(const AttentionArgs& of) {
  const AttentionShape& s = of.shape;
  TESSERA_ASSERT(s.head_dim <= max_device_head_dim && s.batch <= max_grid && s.heads <= max_grid &&
                     s.num_keys() < (std::int64_t{1} << 31),
                 "attention of %ld x %ld tokens, %ld heads of %ld", s.batch, s.num_keys(), s.heads, s.head_dim);
  AttentionCall<T> call{
      .map = {s.batch, s.tokens, s.heads, s.kv_heads, s.head_dim, s.num_keys(), s.query_offset, s.window},
      .scale = static_cast<float>(of.scale),
      .soft_cap = {s.soft_cap, of.scale},
      .positions = of.positions ? data_of<std::int32_t>(of.positions) : nullptr,
      .sinks = s.sinks ? data_of<T>(of.sinks) : nullptr,
      .q = rows_of<const T>(of.qkv.q, s.tokens, s.head_dim),
      .k = rows_of<const T>(of.qkv.k, s.num_keys(), s.head_dim),
      .v = rows_of<const T>(of.qkv.v, s.num_keys(), s.head_dim)};
  call.vectors = s.head_dim % chunk_elements == 0 && are_vectors(call.q) && are_vectors(call.k) && are_vectors(call.v);
  return call;
}

}  // namespace

std::size_t attention_forward_workspace(const AttentionShape&) { return 0; }

std::size_t attention_backward_workspace(const AttentionShape& s) {
  return static_cast<std::size_t>(s.batch * s.heads * s.tokens) * sizeof(float);
}

void attention_forward(const AttentionForwardArgs& args, StreamView stream) {
  dispatch_dtype(args.of.qkv.q.data.dtype, [&]<class T>(T) {
    AttentionCall<T> call = call_of<T>(args.of);
    call.out = data_of<T>(args.out);
    call.lse = args.lse ? args.lse.as<float>() : nullptr;
    call.vectors = call.vectors && aligned16(args.out.data);
    if constexpr (sizeof(T) == 4) launch_plain_forward(call, stream_of(stream));
    else launch_tensor_forward(call, stream_of(stream));
  });
}

void attention_backward(const AttentionBackwardArgs& args, StreamView stream) {
  const AttentionShape& s = args.of.shape;
  TESSERA_ASSERT(args.workspace.nbytes() >= attention_backward_workspace(s), "workspace of %zu bytes",
                 args.workspace.nbytes());
  dispatch_dtype(args.of.qkv.q.data.dtype, [&]<class T>(T) {
    AttentionCall<T> call = call_of<T>(args.of);
    auto* const delta = static_cast<float*>(args.workspace.data);
    call.out = data_of<T>(args.out);
    call.lse = args.lse.as<float>();
    call.dout = data_of<T>(args.dout);
    call.dq = rows_of<T>(args.dqkv.q, s.tokens, s.head_dim);
    call.dk = rows_of<T>(args.dqkv.k, s.num_keys(), s.head_dim);
    call.dv = rows_of<T>(args.dqkv.v, s.num_keys(), s.head_dim);
    call.vectors = call.vectors && aligned16(args.dout.data) && are_vectors(call.dq) && are_vectors(call.dk) &&
                   are_vectors(call.dv);
    delta_kernel<T>
        <<<blocks_for(s.batch * s.tokens * s.heads, ThreadGroup<32>::per_block), group_block, 0, stream_of(stream)>>>(
            call, delta);
    check_launch("attention_backward delta");
    call.delta = delta;
    if (args.dsinks)
      dispatch_gradient_dtype<T>(args.dsinks.dtype, [&]<class G>(G) {
        sinks_kernel<T, G><<<static_cast<unsigned>(s.heads), group_block, 0, stream_of(stream)>>>(
            call, data_of<G>(args.dsinks), args.accumulate_dsinks);
        check_launch("attention_backward sinks");
      });
    if constexpr (sizeof(T) == 4) launch_plain_backward(call, stream_of(stream));
    else launch_tensor_backward(call, stream_of(stream));
  });
}

}  // namespace tessera::kernels::cuda
