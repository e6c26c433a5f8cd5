// SPDX-License-Identifier: Apache-2.0
// Attention of rows that C ranks share (DeepSpeed Ulysses, Jacobs et al. 2023). A rank has 1/C of a row's tokens; it
// sends each other rank the heads that are that rank's, attends with its own heads over the whole row, and sends the
// outputs back. KV heads that are fewer than ranks are on several, and their gradients are summed.
//
// Values: 0 heads to send (C, B, T, width of a part), 1 those received, 2 outputs to send (C, B, T, heads of a part),
// 3 those received. Backward reads 1 and 3.
#include <algorithm>

#include "models/attention.hpp"
#include "runtime/base/error.hpp"
#include "runtime/base/transfer.hpp"

namespace tessera::models {
namespace {

/// (C, B, T, width) from (B, C·T, width), or back: each part has a range of every row's tokens. Of one row they are the
/// same.
struct TokenParts {
  std::int64_t parts, rows, bytes;  // C, B, T·width in bytes
  void split(const TensorView& row, const TensorView& part, StreamView stream) const {
    if (row.data == part.data) return;
    for (std::int64_t p = 0; p < parts; ++p)
      copy_rows({.to = at(part, p * rows * bytes),
                 .to_pitch = size(bytes),
                 .from = at(row, p * bytes),
                 .from_pitch = size(parts * bytes),
                 .width = size(bytes),
                 .rows = size(rows)},
                stream);
  }
  void merge(const TensorView& part, const TensorView& row, StreamView stream) const {
    if (row.data == part.data) return;
    for (std::int64_t p = 0; p < parts; ++p)
      copy_rows({.to = at(row, p * bytes),
                 .to_pitch = size(parts * bytes),
                 .from = at(part, p * rows * bytes),
                 .from_pitch = size(bytes),
                 .width = size(bytes),
                 .rows = size(rows)},
                stream);
  }

 private:
  static std::byte* at(const TensorView& view, std::int64_t offset) {
    return static_cast<std::byte*>(view.data) + offset;
  }
  static std::size_t size(std::int64_t bytes) { return static_cast<std::size_t>(bytes); }
};

TokenParts token_parts(const kernels::HeadParts& of, BatchShape shape, DType dtype) {
  return {of.parts, shape.batch, shape.tokens * of.part_width() * static_cast<std::int64_t>(size_of(dtype))};
}

/// A value's bytes as parts of heads.
TensorView as_parts(const TensorView& bytes, const kernels::HeadParts& of, BatchShape shape, DType dtype) {
  return {bytes.data, dtype, Shape{of.parts, shape.batch * shape.tokens, of.part_width()}, bytes.device};
}

/// Scratch, or without it (of one row) the value itself, as (B, C·T, width of a part).
TensorView as_row(const TensorView& scratch, const TensorView& bytes, const kernels::HeadParts& of, BatchShape shape,
                  DType dtype) {
  if (scratch) return scratch;
  return {bytes.data, dtype, Shape{shape.batch, of.parts * shape.tokens, of.part_width()}, bytes.device};
}

}  // namespace

std::string Attention::context_refusal(ContextShare share) const {
  if (share.kind == ContextKind::gather || kernels::divides_heads({share.ranks, heads_, kv_heads_, head_dim_}))
    return "";
  return strfmt("of kind ulysses over %d ranks, which cannot divide %ld heads with %ld key and value heads",
                share.ranks, heads_, kv_heads_);
}

ModuleStages Attention::stages() const {
  if (context_.ranks == 1) return {};
  if (context_.kind == ContextKind::gather) return gathered_stages();
  constexpr auto all_to_all = ExchangeKind::all_to_all;
  return {.values = {{"heads", false}, {"row heads", true}, {"row output", false}, {"output", true}},
          .stages = {{{}, {0}}, {{1}, {2}}, {{3}, {}}},
          .exchanges = {{{0, 0, 1, all_to_all, all_to_all}, RankGroup::context},
                        {{1, 2, 3, all_to_all, all_to_all}, RankGroup::context}}};
}

std::size_t Attention::value_bytes(int value, BatchShape shape, DType dtype) const {
  if (context_.kind == ContextKind::gather) return gathered_value_bytes(value, shape, dtype);
  const kernels::HeadParts of = value < 2 ? parts_of_qkv() : parts_of_out();
  return static_cast<std::size_t>(of.parts * shape.batch * shape.tokens * of.part_width()) * size_of(dtype);
}

std::size_t Attention::value_gradient_bytes(int value, BatchShape shape, DType dtype) const {
  return value_bytes(value, shape, context_.kind == ContextKind::gather && value == 0 ? DType::f32 : dtype);
}

kernels::AttentionShape Attention::row_shape(BatchShape shape) const {
  const kernels::HeadParts of = parts_of_qkv();
  return {.batch = shape.batch,
          .tokens = shape.tokens * context_.ranks,
          .heads = of.part_heads(),
          .kv_heads = of.part_kv_heads(),
          .head_dim = head_dim_,
          .longest = shape.packed ? shape.num_positions() : 0,
          .window = rules_.window,
          .soft_cap = rules_.soft_cap,
          .sinks = sinks_ >= 0};
}

TensorView Attention::own_sinks(const TensorView& sinks, const Batch* batch, BatchShape shape) const {
  const std::int64_t rank = batch->row_begins[0] / shape.tokens, heads = parts_of_qkv().part_heads();
  return sinks.rows(rank * heads, heads);
}

kernels::AttentionArgs Attention::row_args(std::span<const TensorView> params, const Batch* batch, BatchShape shape,
                                           const TensorView& qkv) const {
  kernels::AttentionArgs args{.shape = row_shape(shape), .qkv = {}, .scale = scale_};
  args.qkv = kernels::fused_qkv(args.shape, qkv);
  if (sinks_ >= 0) args.sinks = own_sinks(at(params, sinks_), batch, shape);
  if (!shape.packed) return args;
  args.positions = batch->row_positions;
  if (batch->document_starts)
    args.documents = {batch->document_groups, batch->document_starts, batch->document_lengths};
  return args;
}

Attention::StageSaved Attention::stage_saved(SavedAllocator& allocator, BatchShape shape, DType dtype) const {
  const std::int64_t rows = shape.batch * shape.tokens;
  StageSaved s;
  if (!qk_norm_rope_.in_place()) s.qkv = allocator.recomputed().take(dtype, {rows, qk_norm_rope_.projected_width()});
  if (shape.saves_outputs) s.heads = qk_norm_rope_.outputs(allocator.kept(), shape, dtype, Phase::train);
  if (context_.kind == ContextKind::gather) {
    s.out = allocator.recomputed().take(dtype, {rows, out_.in()});
    s.lse = allocator.recomputed().take(stat_dtype(dtype), {rows, heads_});
    return s;
  }
  const kernels::AttentionShape row = row_shape(shape);
  s.out = allocator.recomputed().take(dtype, {row.batch, row.tokens, row.heads * row.head_dim});
  s.lse = allocator.recomputed().take(stat_dtype(dtype), {row.batch, row.heads, row.tokens});
  return s;
}

Attention::StageScratch Attention::stage_scratch(ScratchAllocator& allocator, const StageSaved& s, BatchShape shape,
                                                 DType dtype, Phase phase, int stage, Direction direction) const {
  const std::int64_t rows = shape.batch * shape.tokens;
  const bool back = direction == Direction::backward;
  const kernels::AttentionShape row = row_shape(shape);
  StageScratch w;
  if (stage == 1) {
    const Shape qkv{row.batch, row.tokens, parts_of_qkv().part_width()};
    const bool several = shape.batch > 1;
    if (several) w.row = allocator.take(dtype, qkv);
    if (several && (back || phase != Phase::train))
      w.out = allocator.take(dtype, {row.batch, row.tokens, parts_of_out().part_width()});
    if (several && back) w.drow = allocator.take(dtype, qkv);
    w.kernel = allocator.take_bytes(back ? kernels::attention_backward_workspace(row, dtype, shape.device)
                                         : kernels::attention_forward_workspace(row, dtype, shape.device));
    return w;
  }
  const std::int64_t of_heads = back ? qk_norm_rope_.width() : qk_norm_rope_.projected_width();
  w.rows = allocator.take(dtype, {rows, stage == 0 ? of_heads : out_.in()});
  if (stage == 2 && back) w.drows = allocator.take(dtype, w.rows.shape);
  if (stage == 0) w.heads = qk_norm_rope_.allocate(allocator, s.heads, shape, dtype, phase);
  w.lora = take_lora(allocator, shape, dtype);
  if (stage == 0 && back) w.norm = allocator.take_bytes(qk_norm_rope_.norm_workspace(dtype, shape.device));
  return w;
}

std::size_t Attention::stage_workspace_bytes(BatchShape shape, DType dtype, Phase phase) const {
  const bool gathers = context_.kind == ContextKind::gather;
  std::size_t most = 0;
  for (int stage = 0; stage < (gathers ? 2 : 3); ++stage)
    for (const Direction direction : {Direction::forward, Direction::backward}) {
      if (direction == Direction::backward && phase != Phase::train) continue;
      ScratchAllocator allocator;
      if (gathers) (void)gather_scratch(allocator, {}, shape, dtype, phase, stage, direction);
      else (void)stage_scratch(allocator, {}, shape, dtype, phase, stage, direction);
      most = std::max(most, allocator.bytes());
    }
  return most;
}

void Attention::forward_stage(const ForwardArgs& args, const TensorView& residual) const {
  TESSERA_ASSERT(args.phase != Phase::logits, "generation with ranks that share rows");
  const DType dtype = args.x.dtype;
  SavedAllocator saved_allocator(args.saved, args.kept);
  ScratchAllocator allocator(args.workspace);
  const StageSaved s = args.phase == Phase::train ? stage_saved(saved_allocator, args.shape, dtype) : StageSaved{};
  const StageScratch w = stage_scratch(allocator, s, args.shape, dtype, args.phase, args.stage, Direction::forward);
  if (args.stage == 0) return send_heads(args, s, w);
  if (args.stage == 1) return attend_rows(args, s, w);
  if (!args.writes_y) return;
  const kernels::HeadParts of = parts_of_out();
  kernels::merge_heads({.of = of, .rows = w.rows, .parts = as_parts(args.values[3], of, args.shape, dtype)},
                       args.stream);
  out_.forward({.params = args.params,
                .x = w.rows,
                .y = args.y,
                .addend = residual,
                .context = linear_context(w.lora, args.batch, args.phase),
                .stream = args.stream});
}

TensorView Attention::project(const ForwardArgs& args, const TensorView& qkv, const QkNormRope::Scratch& scratch,
                              const TensorView& lora) const {
  qkv_.forward({.params = args.params,
                .x = args.x,
                .y = qkv,
                .context = linear_context(lora, args.batch, args.phase),
                .stream = args.stream});
  return qk_norm_rope_.forward({.phase = args.phase,
                                .shape = args.shape,
                                .params = args.params,
                                .batch = args.batch,
                                .scratch = scratch,
                                .longest = args.shape.tokens * context_.ranks,
                                .stream = args.stream},
                               qkv);
}

void Attention::send_heads(const ForwardArgs& args, const StageSaved& s, const StageScratch& w) const {
  const TensorView heads = project(args, s.qkv ? s.qkv : w.rows, w.heads, w.lora);
  const kernels::HeadParts of = parts_of_qkv();
  kernels::split_heads({.of = of, .rows = heads, .parts = as_parts(args.values[0], of, args.shape, args.x.dtype)},
                       args.stream);
}

void Attention::attend_rows(const ForwardArgs& args, const StageSaved& s, const StageScratch& w) const {
  const DType dtype = args.x.dtype;
  const TensorView row = as_row(w.row, args.values[1], parts_of_qkv(), args.shape, dtype),
                   out = s.out ? s.out : as_row(w.out, args.values[2], parts_of_out(), args.shape, dtype);
  token_parts(parts_of_qkv(), args.shape, dtype).merge(args.values[1], row, args.stream);
  kernels::attention_forward(
      {.of = row_args(args.params, args.batch, args.shape, row), .out = out, .lse = s.lse, .workspace = w.kernel},
      args.stream);
  token_parts(parts_of_out(), args.shape, dtype).split(out, args.values[2], args.stream);
}

void Attention::backward_stage(const BackwardArgs& args) const {
  const Wanted wanted = args.wanted();
  const bool through = through_attention(wanted);
  const DType dtype = args.x.dtype;
  SavedAllocator saved_allocator(args.saved, args.kept);
  ScratchAllocator allocator(args.workspace);
  const StageSaved s = stage_saved(saved_allocator, args.shape, dtype);
  const StageScratch w = stage_scratch(allocator, s, args.shape, dtype, Phase::train, args.stage, Direction::backward);
  if (args.stage < 2 && !through) return;
  if (args.stage == 0) return send_heads_backward(args, s, w);
  if (args.stage == 1) return attend_rows_backward(args, s, w);
  const kernels::HeadParts of = parts_of_out();
  if (out_.has_wanted(wanted))
    kernels::merge_heads({.of = of, .rows = w.rows, .parts = as_parts(args.values[3], of, args.shape, dtype)},
                         args.stream);
  out_.backward({.params = args.params,
                 .grads = args.grads(),
                 .x = w.rows,
                 .dy = args.dy,
                 .dx = through ? w.drows : TensorView{},
                 .context = linear_context(w.lora, args.batch, Phase::train),
                 .stream = args.stream});
  if (through)
    kernels::split_heads({.of = of, .rows = w.drows, .parts = as_parts(args.value_gradients[3], of, args.shape, dtype)},
                         args.stream);
}

void Attention::attend_rows_backward(const BackwardArgs& args, const StageSaved& s, const StageScratch& w) const {
  const DType dtype = args.x.dtype;
  const kernels::HeadParts of_qkv = parts_of_qkv(), of_out = parts_of_out();
  const TokenParts qkv = token_parts(of_qkv, args.shape, dtype);
  const TensorView row = as_row(w.row, args.values[1], of_qkv, args.shape, dtype),
                   drow = as_row(w.drow, args.value_gradients[1], of_qkv, args.shape, dtype),
                   dout = as_row(w.out, args.value_gradients[2], of_out, args.shape, dtype);
  qkv.merge(args.values[1], row, args.stream);
  token_parts(of_out, args.shape, dtype).merge(args.value_gradients[2], dout, args.stream);
  const kernels::AttentionArgs of = row_args(args.params, args.batch, args.shape, row);
  TensorView dsinks;  // 0 of other ranks' heads: the gradients of all are summed
  const bool adds = sinks_ >= 0 && args.grads().adds(sinks_);
  if (sinks_ >= 0 && args.wanted()[sinks_]) {
    if (!adds) clear(args.grads()[sinks_], args.stream);
    dsinks = own_sinks(args.grads()[sinks_], args.batch, args.shape);
  }
  kernels::attention_backward({.of = of,
                               .dout = dout,
                               .out = s.out,
                               .lse = s.lse,
                               .dqkv = kernels::fused_qkv(of.shape, drow),
                               .dsinks = dsinks,
                               .accumulate_dsinks = adds && dsinks,
                               .workspace = w.kernel},
                              args.stream);
  qkv.split(drow, args.value_gradients[1], args.stream);
}

void Attention::send_heads_backward(const BackwardArgs& args, const StageSaved& s, const StageScratch& w) const {
  const kernels::HeadParts of = parts_of_qkv();
  kernels::merge_heads(
      {.of = of, .rows = w.rows, .parts = as_parts(args.value_gradients[0], of, args.shape, args.x.dtype)},
      args.stream);
  (void)qk_norm_rope_.recompute(heads_args(args, w.heads), s.qkv);
  project_backward(args, {.saved = s.qkv, .dqkv = w.rows, .heads = w.heads, .norm = w.norm, .lora = w.lora});
}

}  // namespace tessera::models
