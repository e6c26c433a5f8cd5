// SPDX-License-Identifier: Apache-2.0
// QkNormRope by the rms_norm and rope kernels, on columns of the projections.
#include "models/qk_norm_rope.hpp"

#include "kernels/rope.hpp"

namespace tessera::models {

QkNormRope::QkNormRope(const QkNormRopeSpec& spec, ParamList& params)
    : heads_(spec.heads),
      kv_heads_(spec.kv_heads),
      head_dim_(spec.head_dim),
      projected_heads_(spec.heads),
      projected_kv_heads_(spec.kv_heads),
      rope_(spec.rope) {
  TESSERA_ASSERT(kv_heads_ > 0 && heads_ % kv_heads_ == 0 && head_dim_ > 0);
  TESSERA_ASSERT(!rope_ || rope_->width() <= head_dim_);
  if (!spec.norms) return;
  normed_ = true;
  eps_ = spec.norms->eps;
  joint_ = spec.norms->joint;
  weight_offset_ = spec.norms->q.empty() ? 1 : spec.norms->weight_offset;
  if (spec.norms->q.empty()) return;
  for (const int which : {0, 1})
    weights_[which] = params.add({.name = which == 0 ? spec.norms->q : spec.norms->k,
                                  .shape = {part(which).group},
                                  .init = norm_weight_init(weight_offset_),
                                  .decay = false});
}

QkNormRope::Outputs QkNormRope::outputs(ScratchAllocator& allocator, BatchShape shape, DType dtype, Phase phase) const {
  const std::int64_t rows = shape.batch * shape.tokens;
  Outputs out;
  if (!normed_) return out;
  out.heads = allocator.take(dtype, {rows, width()});
  if (phase == Phase::train)
    for (const int which : {0, 1}) out.rstd[which] = allocator.take(stat_dtype(dtype), {rows * part(which).groups()});
  return out;
}

QkNormRope::Scratch QkNormRope::allocate(ScratchAllocator& allocator, const Outputs& saved, BatchShape shape,
                                         DType dtype, Phase phase) const {
  const std::int64_t rows = shape.batch * shape.tokens;
  Scratch s;
  // In generation a row's tokens may have any positions: every row of x has its own row of the table.
  if (rope_)
    s.table =
        allocator.take(stat_dtype(dtype), {phase == Phase::logits ? rows : shape.num_positions(), rope_->width()});
  if (normed_ && weights_[0] < 0) s.zeros = allocator.take(dtype, {part(0).group});
  if (projects_others()) s.all = allocator.take(dtype, {rows, projected_width()});
  s.outputs = shape.saves_outputs ? saved : outputs(allocator, shape, dtype, phase);
  return s;
}

/// In generation with positions every row has its own row of the table, which its rotation makes.
static bool has_own_rows(Phase phase, const Batch* batch) { return phase == Phase::logits && batch->positions; }

static kernels::RopeTableArgs table_args(const Rope& rope, const QkNormRope::Args& args) {
  const bool own_rows = has_own_rows(args.phase, args.batch);
  return {.inv_freq = rope.frequencies(args.longest),
          .scale = rope.scale,
          .positions = own_rows ? args.batch->positions : TensorView{},
          .table = own_rows ? args.scratch.table : args.scratch.table.rows(0, args.shape.num_positions())};
}

void QkNormRope::make_table(const Args& args) const {
  if (rope_ && !has_own_rows(args.phase, args.batch)) kernels::rope_table(table_args(*rope_, args), args.stream);
}

void QkNormRope::rotate(const Args& args, const TensorView& x, bool back) const {
  if (!rope_) return;
  const bool own_rows = has_own_rows(args.phase, args.batch);
  const bool listed = args.batch && args.batch->positions && !own_rows;
  const kernels::RopeTableArgs table = table_args(*rope_, args);
  const kernels::RopeArgs rotation{.x = columns(x, 0, (heads_ + kv_heads_) * head_dim_),
                                   .head_dim = head_dim_,
                                   .stride = width(),
                                   .table = table.table,
                                   .positions = listed ? args.batch->positions : TensorView{},
                                   .rotation = back ? kernels::Rotation::backward : kernels::Rotation::forward,
                                   .pairs = rope_->pairs};
  if (own_rows) kernels::rope_at_positions(table, rotation, args.stream);
  else kernels::rope(rotation, args.stream);
}

void QkNormRope::copy_own(const Args& args, const TensorView& all, const TensorView& own, Columns direction) const {
  const int rank = args.batch != nullptr ? args.batch->tensor_rank : 0;
  const auto copy = [&](std::int64_t in_all, std::int64_t in_own, std::int64_t count) {
    const TensorView a = columns(all, in_all * head_dim_, count * head_dim_),
                     b = columns(own, in_own * head_dim_, count * head_dim_);
    if (direction == Columns::out_of_all) copy_columns(a, projected_width(), b, width(), args.stream);
    else copy_columns(b, width(), a, projected_width(), args.stream);
  };
  // Ranks that are more than key and value heads have the same one as others.
  const std::int64_t ranks = projected_heads_ / heads_, parts = projected_kv_heads_ / kv_heads_;
  copy(rank * heads_, 0, heads_);
  copy(projected_heads_ + rank * parts / ranks * kv_heads_, heads_, kv_heads_);
}

void QkNormRope::norm(const Args& args, const TensorView& qkv) const {
  const TensorView& heads = projects_others() ? args.scratch.all : args.scratch.outputs.heads;
  if (args.scratch.zeros) clear(args.scratch.zeros, args.stream);
  for (const int which : {0, 1}) {
    const Part p = part(which);
    kernels::rms_norm_forward({.x = columns(qkv, p.column, p.columns),
                               .weight = weight(args, which),
                               .y = columns(heads, p.column, p.columns),
                               .rstd = args.scratch.outputs.rstd[which],
                               .eps = eps_,
                               .weight_offset = weight_offset_,
                               .stride_x = projected_width(),
                               .stride_y = projected_width()},
                              args.stream);
  }
  const TensorView& own = args.scratch.outputs.heads;
  copy_columns(projected_v(qkv), projected_width(), own_v(own), width(), args.stream);
  if (projects_others()) copy_own(args, heads, own, Columns::out_of_all);
}

TensorView QkNormRope::forward(const Args& args, const TensorView& qkv) const {
  make_table(args);
  if (normed_) norm(args, qkv);
  const TensorView heads = normed_ ? args.scratch.outputs.heads : qkv;
  rotate(args, heads, /*back=*/false);
  return heads;
}

TensorView QkNormRope::recompute(const Args& args, const TensorView& qkv) const {
  if (normed_ && !args.shape.saves_outputs) return forward(args, qkv);
  make_table(args);
  return normed_ ? args.scratch.outputs.heads : qkv;  // rotated
}

TensorView QkNormRope::backward(const Args& args, const BackwardArgs& back) const {
  rotate(args, back.dqkv, /*back=*/true);
  if (!normed_ || (weights_[0] < 0 && !back.write_dqkv)) return back.dqkv;
  const TensorView& gradient = projects_others() ? args.scratch.all : back.dqkv;
  if (projects_others()) {  // of a rank's own heads: the sum over the ranks is that of all
    clear(gradient, args.stream);
    copy_own(args, gradient, back.dqkv, Columns::into_all);
    copy_columns(own_v(back.dqkv), width(), projected_v(gradient), projected_width(), args.stream);
  }
  if (args.scratch.zeros) clear(args.scratch.zeros, args.stream);
  for (const int which : {0, 1}) {
    const Part p = part(which);
    const TensorView d = columns(gradient, p.column, p.columns);
    kernels::rms_norm_backward({.dy = d,
                                .x = columns(back.qkv, p.column, p.columns),
                                .weight = weight(args, which),
                                .rstd = args.scratch.outputs.rstd[which],
                                .dx = back.write_dqkv ? d : TensorView{},
                                .dweight = weights_[which] >= 0 ? back.grads[weights_[which]] : TensorView{},
                                .accumulate = weights_[which] >= 0 && back.grads.adds(weights_[which]),
                                .workspace = back.workspace,
                                .weight_offset = weight_offset_,
                                .stride_dy = projected_width(),
                                .stride_x = projected_width(),
                                .stride_dx = projected_width()},
                               args.stream);
  }
  return gradient;
}

std::size_t QkNormRope::norm_workspace(DType dtype, Device device) const {
  return weights_[0] >= 0 ? kernels::rms_norm_backward_workspace(part(0).group, dtype, device) : 0;
}

}  // namespace tessera::models
