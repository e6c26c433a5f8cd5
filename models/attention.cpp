// SPDX-License-Identifier: Apache-2.0
// Saves q, k, v, the heads' output and the softmax statistics (lse), and no T×T buffer. In generation, keys and values
// are appended to the cache, and later passes compute the new tokens only.
#include "models/attention.hpp"

#include <algorithm>
#include <cmath>

#include "models/tensor_split.hpp"
#include "runtime/base/error.hpp"

namespace tessera::models {
namespace {

/// Document boundaries of packed rows, in training and evaluation.
TensorView documents(const Batch* batch) { return batch != nullptr ? batch->positions : TensorView{}; }
/// The same as a list, where the run has one.
kernels::AttentionDocuments document_list(const Batch* batch) {
  if (batch == nullptr || !batch->document_starts) return {};
  return {batch->document_groups, batch->document_starts, batch->document_lengths};
}

/// See QkNormRope::Args. In generation what the cache has memory for, so that every pass has the same frequencies.
std::int64_t longest_of(const ForwardArgs& args) {
  return args.cache.bytes ? args.cache.capacity.tokens : args.shape.num_positions();
}

}  // namespace

bool wants_document_list(DType dtype, Device device) { return kernels::wants_document_list(dtype, device); }

Attention::Attention(const AttentionSpec& spec, ParamList& params)
    : heads_(spec.heads.heads),
      kv_heads_(spec.heads.kv_heads),
      head_dim_(spec.heads.head_dim),
      scale_(spec.rules.scale > 0 ? spec.rules.scale : 1.0 / std::sqrt(static_cast<double>(head_dim_))),
      rules_(spec.rules),
      qkv_(spec.qkv, params),
      out_(spec.out, params),
      qk_norm_rope_(spec.heads, params) {
  TESSERA_ASSERT(qkv_.out() == qk_norm_rope_.projected_width() && out_.in() == heads_ * head_dim_);
  if (rules_.sinks) sinks_ = params.add(*rules_.sinks);
}

kernels::AttentionShape Attention::kernel_shape(BatchShape shape, Phase phase) const {
  return {.batch = shape.batch,
          .tokens = shape.tokens,
          .heads = heads_,
          .kv_heads = kv_heads_,
          .head_dim = head_dim_,
          .longest = phase == Phase::train && shape.packed ? shape.num_positions() : 0,
          .window = rules_.window,
          .soft_cap = rules_.soft_cap,
          .sinks = sinks_ >= 0};
}

kernels::AttentionArgs Attention::kernel_args(std::span<const TensorView> params, BatchShape shape, Phase phase,
                                              const TensorView& heads) const {
  const kernels::AttentionShape of = kernel_shape(shape, phase);
  return {.shape = of,
          .qkv = kernels::fused_qkv(of, heads),
          .scale = scale_,
          .sinks = sinks_ >= 0 ? at(params, sinks_) : TensorView{}};
}

Attention::Saved Attention::saved(SavedAllocator& allocator, BatchShape shape, DType dtype) const {
  const std::int64_t rows = shape.batch * shape.tokens;
  Saved s;
  s.qkv = allocator.recomputed().take(dtype, {rows, qk_norm_rope_.projected_width()});
  s.out = allocator.kept().take(dtype, {rows, out_.in()});
  s.lse = allocator.kept().take(stat_dtype(dtype), {shape.batch, heads_, shape.tokens});
  if (shape.saves_outputs) s.heads = qk_norm_rope_.outputs(allocator.kept(), shape, dtype, Phase::train);
  return s;
}

Attention::ForwardScratch Attention::forward_scratch(ScratchAllocator& allocator, const Saved& s, BatchShape shape,
                                                     DType dtype, Phase phase) const {
  ForwardScratch w;
  w.heads = qk_norm_rope_.allocate(allocator, s.heads, shape, dtype, phase);
  w.kernel = allocator.take_bytes(kernel_bytes(shape, dtype, phase));
  w.lora = take_lora(allocator, shape, dtype);
  return w;
}

Attention::BackwardScratch Attention::backward_scratch(ScratchAllocator& allocator, const Saved& s, BatchShape shape,
                                                       DType dtype) const {
  const std::int64_t rows = shape.batch * shape.tokens;
  BackwardScratch w;
  w.heads = qk_norm_rope_.allocate(allocator, s.heads, shape, dtype, Phase::train);
  w.dout = allocator.take(dtype, {rows, out_.in()});
  w.dqkv = allocator.take(dtype, {rows, qk_norm_rope_.width()});
  w.lora = take_lora(allocator, shape, dtype);
  const std::size_t mark = allocator.mark();
  w.kernel = allocator.take_bytes(
      kernels::attention_backward_workspace(kernel_shape(shape, Phase::train), dtype, shape.device));
  allocator.rewind(mark);
  w.norm = allocator.take_bytes(qk_norm_rope_.norm_workspace(dtype, shape.device));
  return w;
}

TensorView Attention::take_lora(ScratchAllocator& allocator, BatchShape shape, DType dtype) const {
  const std::int64_t rows = shape.batch * shape.tokens;
  return allocator.take_bytes(std::max(out_.lora_workspace_bytes(rows, dtype), qkv_.lora_workspace_bytes(rows, dtype)));
}

void Attention::adapt(AdapterMaker& adapters) {
  qkv_.adapt(adapters);
  out_.adapt(adapters);
}

void Attention::split(const TensorSplit& over) {
  const std::int64_t q = heads_ * head_dim_, kv = kv_heads_ * head_dim_;
  heads_ = over.part(heads_, "attention heads");
  const bool several_have_one = kv_heads_ < over.ranks() && over.ranks() % kv_heads_ == 0;
  if (!several_have_one && kv_heads_ % over.ranks() != 0)
    throw Error(ExitCode::usage,
                strfmt("--tensor_parallel_size %d cannot divide %ld key and value heads", over.ranks(), kv_heads_),
                "tensor_parallel_size", strfmt("Choose a divisor or a multiple of %ld", kv_heads_));
  if (qk_norm_rope_.is_joint()) qkv_.split_last(over, several_have_one ? kv_heads_ : over.ranks());
  else if (several_have_one) qkv_.repeat_outputs(over, kv_heads_);
  else qkv_.split_outputs(over, {q, kv, kv});
  kv_heads_ = several_have_one ? 1 : kv_heads_ / over.ranks();
  if (sinks_ >= 0) over.divide(sinks_, 0);
  out_.split_inputs(over);
  qk_norm_rope_.split(heads_, kv_heads_);
}

SavedBytes Attention::saved_bytes(BatchShape shape, DType dtype) const {
  if (context_.ranks > 1)
    return saved_bytes_of([&](SavedAllocator& allocator) { (void)stage_saved(allocator, shape, dtype); });
  return saved_bytes_of([&](SavedAllocator& allocator) { (void)saved(allocator, shape, dtype); });
}

std::size_t Attention::workspace_bytes(BatchShape shape, DType dtype, Phase phase) const {
  if (context_.ranks > 1) return stage_workspace_bytes(shape, dtype, phase);
  ScratchAllocator forward_allocator, backward_allocator;
  (void)forward_scratch(forward_allocator, {}, shape, dtype, phase);
  if (phase == Phase::train) (void)backward_scratch(backward_allocator, {}, shape, dtype);
  return std::max(forward_allocator.bytes(), backward_allocator.bytes());
}

std::size_t Attention::kernel_bytes(BatchShape shape, DType dtype, Phase phase) const {
  const std::size_t own = kernels::attention_forward_workspace(kernel_shape(shape, phase), dtype, shape.device);
  if (phase != Phase::logits) return own;
  return std::max(own, kernels::cached_attention_workspace(kernel_shape(shape, phase), dtype, shape.device));
}

kernels::AttentionCache Attention::cache(ScratchAllocator& allocator, CacheShape capacity, DType dtype) const {
  const std::int64_t ring = rules_.window > 0 ? rules_.window + capacity.pass_tokens - 1 : capacity.tokens;
  const Shape shape{capacity.batch, kv_heads_, std::min(capacity.tokens, ring), head_dim_};
  return {.keys = allocator.take(dtype, shape), .values = allocator.take(dtype, shape)};
}

std::size_t Attention::cache_bytes(CacheShape capacity, DType dtype) const {
  return bytes_of([&](ScratchAllocator& allocator) { (void)cache(allocator, capacity, dtype); });
}

void Attention::append_first(const ForwardArgs& args, const kernels::AttentionArgs& of,
                             const kernels::AttentionCache& cache) const {
  const std::int64_t ring = cache.capacity(), tokens = args.shape.tokens;
  if (tokens <= ring)
    return kernels::cache_append({.shape = of.shape, .k = of.qkv.k, .v = of.qkv.v, .positions = {}, .cache = cache},
                                 args.stream);
  for (std::int64_t b = 0; b < args.shape.batch; ++b) {
    const std::int64_t length = args.batch->lengths ? args.batch->lengths[b] : tokens;
    kernels::AttentionShape row = of.shape;
    row.batch = 1, row.tokens = std::min(length, ring);
    const std::int64_t first = length - row.tokens;
    const auto kept = [&](const kernels::HeadRows& heads) -> kernels::HeadRows {
      const std::int64_t numel = (row.tokens - 1) * heads.pitch + kv_heads_ * head_dim_;
      return {heads.data.rows((b * tokens + first) * heads.pitch, numel), heads.pitch};
    };
    kernels::cache_append({.shape = row,
                           .k = kept(of.qkv.k),
                           .v = kept(of.qkv.v),
                           .positions = {},
                           .cache = {cache.keys.rows(b, 1), cache.values.rows(b, 1)},
                           .first = first},
                          args.stream);
  }
}

void Attention::attend(const ForwardArgs& args, const Saved& s, const TensorView& heads,
                       const TensorView& scratch) const {
  kernels::AttentionArgs of = kernel_args(args.params, args.shape, args.phase, heads);
  const TensorView out = s.out.reshape({args.shape.batch, args.shape.tokens, out_.in()});
  const TensorView positions = args.cache.bytes ? args.batch->positions : TensorView{};
  kernels::AttentionCache cached;
  if (args.cache.bytes) {
    ScratchAllocator allocator(args.cache.bytes);
    cached = cache(allocator, args.cache.capacity, args.x.dtype);
    TESSERA_ASSERT(!positions || args.shape.tokens <= args.cache.capacity.pass_tokens, "%ld tokens of a row",
                   args.shape.tokens);
    if (!positions) append_first(args, of, cached);
  }
  if (positions) {
    of.positions = positions;
    kernels::cached_attention({.of = of, .cache = cached, .out = out, .workspace = scratch, .appends = true},
                              args.stream);
    return;
  }
  if (args.phase != Phase::logits) of.positions = documents(args.batch);
  of.documents = document_list(args.batch);
  kernels::attention_forward(
      {.of = of, .out = out, .lse = args.phase == Phase::train ? s.lse : TensorView{}, .workspace = scratch},
      args.stream);
}

void Attention::forward(const ForwardArgs& args, const TensorView& residual) const {
  if (context_.ranks > 1)
    return context_.kind == ContextKind::gather ? forward_gathered(args, residual) : forward_stage(args, residual);
  const DType dtype = args.x.dtype;
  SavedAllocator saved_allocator(args.saved, args.kept);
  ScratchAllocator allocator(args.workspace);
  const Saved s = saved(saved_allocator, args.shape, dtype);
  const ForwardScratch w = forward_scratch(allocator, s, args.shape, dtype, args.phase);

  const LinearContext context = linear_context(w.lora, args.batch, args.phase);
  qkv_.forward({.params = args.params, .x = args.x, .y = s.qkv, .context = context, .stream = args.stream});
  const bool has_output = args.recompute && args.kept;
  if (!has_output || qk_norm_rope_.in_place()) {
    const TensorView heads = qk_norm_rope_.forward({.phase = args.phase,
                                                    .shape = args.shape,
                                                    .params = args.params,
                                                    .batch = args.batch,
                                                    .scratch = w.heads,
                                                    .longest = longest_of(args),
                                                    .stream = args.stream},
                                                   s.qkv);
    if (!has_output) attend(args, s, heads, w.kernel);
  }
  if (!args.writes_y) return;
  out_.forward(
      {.params = args.params, .x = s.out, .y = args.y, .addend = residual, .context = context, .stream = args.stream});
}

bool Attention::through_heads(const Wanted& wanted) const { return wanted.dx() || qkv_.has_wanted(wanted); }

bool Attention::through_attention(const Wanted& wanted) const {
  return through_heads(wanted) || qk_norm_rope_.has_wanted(wanted) || (sinks_ >= 0 && wanted[sinks_]);
}

bool Attention::has_wanted(const Wanted& wanted) const {
  return through_attention(wanted.with_dx(false)) || out_.has_wanted(wanted);
}

bool Attention::backward_reads_input(const Wanted& wanted) const { return qkv_.weight_wanted(wanted); }

void Attention::backward(const BackwardArgs& args) const {
  if (context_.ranks > 1) return context_.kind == ContextKind::gather ? backward_gathered(args) : backward_stage(args);
  const Wanted wanted = args.wanted();
  const bool through = through_attention(wanted);
  const DType dtype = args.x.dtype;
  SavedAllocator saved_allocator(args.saved, args.kept);
  ScratchAllocator allocator(args.workspace);
  const Saved s = saved(saved_allocator, args.shape, dtype);
  const BackwardScratch w = backward_scratch(allocator, s, args.shape, dtype);
  out_.backward({.params = args.params,
                 .grads = args.grads(),
                 .x = s.out,
                 .dy = args.dy,
                 .dx = through ? w.dout : TensorView{},
                 .context = linear_context(w.lora, args.batch, Phase::train),
                 .stream = args.stream});
  if (!through) return;
  const TensorView heads = qk_norm_rope_.recompute(heads_args(args, w.heads), s.qkv);
  const Shape heads_shape{args.shape.batch, args.shape.tokens, out_.in()};
  kernels::AttentionArgs of = kernel_args(args.params, args.shape, Phase::train, heads);
  of.positions = documents(args.batch);
  of.documents = document_list(args.batch);
  const bool sinks_wanted = sinks_ >= 0 && wanted[sinks_];
  kernels::attention_backward({.of = of,
                               .dout = w.dout.reshape(heads_shape),
                               .out = s.out.reshape(heads_shape),
                               .lse = s.lse,
                               .dqkv = kernels::fused_qkv(of.shape, w.dqkv),
                               .dsinks = sinks_wanted ? args.grads()[sinks_] : TensorView{},
                               .accumulate_dsinks = sinks_wanted && args.grads().adds(sinks_),
                               .workspace = w.kernel},
                              args.stream);
  project_backward(args, {.saved = s.qkv, .dqkv = w.dqkv, .heads = w.heads, .norm = w.norm, .lora = w.lora});
}

QkNormRope::Args Attention::heads_args(const BackwardArgs& args, const QkNormRope::Scratch& scratch) const {
  return {.phase = Phase::train,
          .shape = args.shape,
          .params = args.params,
          .batch = args.batch,
          .scratch = scratch,
          .longest = context_.ranks > 1 ? args.shape.tokens * context_.ranks : args.shape.num_positions(),
          .stream = args.stream};
}

void Attention::project_backward(const BackwardArgs& args, const ProjectBackward& of) const {
  const bool through_projections = through_heads(args.wanted());
  const TensorView dprojections = qk_norm_rope_.backward(heads_args(args, of.heads), {.grads = args.grads(),
                                                                                      .qkv = of.saved,
                                                                                      .dqkv = of.dqkv,
                                                                                      .write_dqkv = through_projections,
                                                                                      .workspace = of.norm});
  if (!through_projections) return;
  qkv_.backward({.params = args.params,
                 .grads = args.grads(),
                 .x = args.x,
                 .dy = dprojections,
                 .dx = args.dx,
                 .context = linear_context(of.lora, args.batch, Phase::train),
                 .stream = args.stream});
}

double Attention::recompute_flops(BatchShape shape, const RecomputeTask& what) const {
  const auto rows = static_cast<double>(shape.batch * shape.tokens);
  const auto width = static_cast<double>(heads_ * head_dim_);
  double per_row = qkv_.flops_per_row() + (what.writes_y ? out_.flops_per_row() : 0.0);
  // QKᵀ and PV: 2·keys·width each. With stages nothing of it is kept.
  if (!what.keeps || context_.ranks > 1) per_row += 4.0 * counted_keys(shape) * width;
  return rows * per_row;
}

double Attention::backward_flops(BatchShape shape, const Wanted& wanted) const {
  const auto rows = static_cast<double>(shape.batch * shape.tokens);
  const auto width = static_cast<double>(heads_ * head_dim_);
  const bool through = through_attention(wanted);
  double per_row = out_.backward_flops_per_row(wanted.with_dx(through)) + qkv_.backward_flops_per_row(wanted);
  // the gradients of V, P, Q and K: 2·keys·width each
  if (through) per_row += 8.0 * counted_keys(shape) * width;
  return rows * per_row;
}

}  // namespace tessera::models
