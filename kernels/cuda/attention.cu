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

template <class T>
AttentionCall<T> call_of(const AttentionShape& s, double scale, const TensorView& qkv, const TensorView& positions) {
  TESSERA_ASSERT(s.head_dim <= max_device_head_dim && s.batch <= max_grid && s.heads <= max_grid &&
                     s.tokens < (std::int64_t{1} << 31),
                 "attention of %ld x %ld tokens, %ld heads of %ld", s.batch, s.tokens, s.heads, s.head_dim);
  return {.map = {s.batch, s.tokens, s.heads, s.kv_heads, s.head_dim},
          .scale = static_cast<float>(scale),
          .positions = positions ? data_of<std::int32_t>(positions) : nullptr,
          .qkv = data_of<T>(qkv),
          .vectors = s.head_dim % chunk_elements == 0 && aligned16(qkv.data)};
}

}  // namespace

std::size_t attention_forward_workspace(const AttentionShape&) { return 0; }

std::size_t attention_backward_workspace(const AttentionShape& s) {
  return static_cast<std::size_t>(s.batch * s.heads * s.tokens) * sizeof(float);
}

void attention_forward(const AttentionForwardArgs& args, StreamView stream) {
  dispatch_dtype(args.qkv.dtype, [&]<class T>(T) {
    AttentionCall<T> call = call_of<T>(args.shape, args.scale, args.qkv, args.positions);
    call.out = data_of<T>(args.out);
    call.lse = args.lse ? args.lse.as<float>() : nullptr;
    call.vectors = call.vectors && aligned16(args.out.data);
    if constexpr (sizeof(T) == 4) launch_plain_forward(call, stream_of(stream));
    else launch_tensor_forward(call, stream_of(stream));
  });
}

void attention_backward(const AttentionBackwardArgs& args, StreamView stream) {
  TESSERA_ASSERT(args.workspace.nbytes() >= attention_backward_workspace(args.shape), "workspace of %zu bytes",
                 args.workspace.nbytes());
  dispatch_dtype(args.qkv.dtype, [&]<class T>(T) {
    AttentionCall<T> call = call_of<T>(args.shape, args.scale, args.qkv, args.positions);
    auto* const delta = static_cast<float*>(args.workspace.data);
    call.out = data_of<T>(args.out);
    call.lse = args.lse.as<float>();
    call.dout = data_of<T>(args.dout);
    call.dqkv = data_of<T>(args.dqkv);
    call.vectors = call.vectors && aligned16(args.dout.data) && aligned16(args.dqkv.data);
    const AttentionShape& s = args.shape;
    delta_kernel<T>
        <<<blocks_for(s.batch * s.tokens * s.heads, ThreadGroup<32>::per_block), group_block, 0, stream_of(stream)>>>(
            call, delta);
    check_launch("attention_backward delta");
    call.delta = delta;
    if constexpr (sizeof(T) == 4) launch_plain_backward(call, stream_of(stream));
    else launch_tensor_backward(call, stream_of(stream));
  });
}

}  // namespace tessera::kernels::cuda
