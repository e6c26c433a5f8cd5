// Attention: saved are q, k, v, the heads' output and the softmax denominators; no T×T buffer anywhere. In generation, keys and
// values go into the cache as attention would read them, and later passes bring the new tokens alone.
#include "models/attention.hpp"

#include <cmath>

namespace tessera::models {

Attention::Attention(const AttentionSpec& spec, ParamList& params)
    : heads_(spec.heads), kv_heads_(spec.kv_heads), head_dim_(spec.head_dim),
      scale_(1.0 / std::sqrt(static_cast<double>(spec.head_dim))), qkv_(spec.qkv, params), out_(spec.out, params) {
  TESSERA_ASSERT(kv_heads_ > 0 && heads_ % kv_heads_ == 0);
  TESSERA_ASSERT(qkv_.out() == (heads_ + 2 * kv_heads_) * head_dim_ && out_.in() == heads_ * head_dim_);
}

kernels::AttentionShape Attention::kernel_shape(BatchShape shape) const {
  return {.batch = shape.batch, .tokens = shape.tokens, .heads = heads_, .kv_heads = kv_heads_, .head_dim = head_dim_};
}

Attention::Saved Attention::saved(Carver& carver, BatchShape shape, DType dtype) const {
  const std::int64_t rows = shape.batch * shape.tokens;
  Saved s;
  s.qkv = carver.take(dtype, {rows, qkv_.out()});
  s.out = carver.take(dtype, {rows, out_.in()});
  s.lse = carver.take(dtype, {shape.batch, heads_, shape.tokens});
  return s;
}

Attention::Scratch Attention::backward_scratch(Carver& carver, BatchShape shape, DType dtype) const {
  const std::int64_t rows = shape.batch * shape.tokens;
  Scratch s;
  s.dout = carver.take(dtype, {rows, out_.in()});
  s.dqkv = carver.take(dtype, {rows, qkv_.out()});
  s.kernel = carver.take_bytes(kernels::attention_backward_workspace(kernel_shape(shape), dtype));
  return s;
}

std::size_t Attention::saved_bytes(BatchShape shape, DType dtype) const {
  Carver carver;
  (void)saved(carver, shape, dtype);
  return carver.bytes();
}

std::size_t Attention::workspace_bytes(BatchShape shape, DType dtype, Phase phase) const {
  Carver forward_carver, backward_carver;
  (void)forward_carver.take_bytes(forward_scratch_bytes(shape, dtype, phase));
  if (phase == Phase::train) (void)backward_scratch(backward_carver, shape, dtype);
  return std::max(forward_carver.bytes(), backward_carver.bytes());
}

std::size_t Attention::forward_scratch_bytes(BatchShape shape, DType dtype, Phase phase) const {
  const std::size_t own = kernels::attention_forward_workspace(kernel_shape(shape), dtype);
  return phase == Phase::logits ? std::max(own, kernels::cached_attention_workspace(kernel_shape(shape), dtype)) : own;
}

kernels::AttentionCache Attention::cache(Carver& carver, BatchShape room, DType dtype) const {
  const Shape shape{room.batch, kv_heads_, room.tokens, head_dim_};
  return {.keys = carver.take(dtype, shape), .values = carver.take(dtype, shape)};
}

std::size_t Attention::cache_bytes(BatchShape room, DType dtype) const {
  Carver carver;
  (void)cache(carver, room, dtype);
  return carver.bytes();
}

void Attention::attend(const ForwardArgs& args, const Saved& s, const TensorView& scratch) const {
  const kernels::AttentionShape shape = kernel_shape(args.shape);
  const TensorView qkv = s.qkv.reshape({args.shape.batch, args.shape.tokens, qkv_.out()});
  const TensorView out = s.out.reshape({args.shape.batch, args.shape.tokens, out_.in()});
  const TensorView positions = args.cache.bytes ? args.batch->positions : TensorView{};
  kernels::AttentionCache cached;
  if (args.cache.bytes) {
    Carver carver(args.cache.bytes);
    cached = cache(carver, args.cache.room, args.x.dtype);
    kernels::cache_append({.shape = shape, .qkv = qkv, .positions = positions, .cache = cached}, args.stream);
  }
  if (positions) {
    kernels::cached_attention({.shape = shape, .qkv = qkv, .positions = positions, .cache = cached, .out = out,
                               .scale = scale_, .workspace = scratch}, args.stream);
    return;
  }
  kernels::attention_forward({.shape = shape, .qkv = qkv, .out = out, .lse = args.phase == Phase::train ? s.lse : TensorView{},
                              .scale = scale_, .workspace = scratch}, args.stream);
}

void Attention::forward(const ForwardArgs& args) const {
  const DType dtype = args.x.dtype;
  Carver saved_carver(args.saved), carver(args.workspace);
  const Saved s = saved(saved_carver, args.shape, dtype);
  const TensorView scratch = carver.take_bytes(forward_scratch_bytes(args.shape, dtype, args.phase));

  qkv_.forward({.params = args.params, .x = args.x, .y = s.qkv, .stream = args.stream});
  attend(args, s, scratch);
  out_.forward({.params = args.params, .x = s.out, .y = args.y, .write = Write::add, .stream = args.stream});
}

void Attention::backward(const BackwardArgs& args) const {
  const DType dtype = args.x.dtype;
  Carver saved_carver(args.saved), carver(args.workspace);
  const Saved s = saved(saved_carver, args.shape, dtype);
  const Scratch w = backward_scratch(carver, args.shape, dtype);

  out_.backward({.params = args.params, .grads = args.grads, .x = s.out, .dy = args.dy, .dx = w.dout, .stream = args.stream});
  const Shape heads_shape{args.shape.batch, args.shape.tokens, out_.in()};
  const Shape qkv_shape{args.shape.batch, args.shape.tokens, qkv_.out()};
  kernels::attention_backward({.shape = kernel_shape(args.shape),
                               .dout = w.dout.reshape(heads_shape),
                               .qkv = s.qkv.reshape(qkv_shape),
                               .out = s.out.reshape(heads_shape),
                               .lse = s.lse,
                               .dqkv = w.dqkv.reshape(qkv_shape),
                               .scale = scale_,
                               .workspace = w.kernel},
                              args.stream);
  qkv_.backward({.params = args.params, .grads = args.grads, .x = args.x, .dy = w.dqkv, .dx = args.dx, .stream = args.stream});
}

double Attention::forward_flops(BatchShape shape) const {
  const auto rows = static_cast<double>(shape.batch * shape.tokens);
  const auto width = static_cast<double>(heads_ * head_dim_);
  // scores and values: 2·T·width each, the causal half not subtracted
  return rows * (qkv_.flops_per_row() + out_.flops_per_row() + 4.0 * static_cast<double>(shape.tokens) * width);
}

}  // namespace tessera::models
