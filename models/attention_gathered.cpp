// SPDX-License-Identifier: Apache-2.0
// Attention of rows that C ranks share, with gathered keys and values (Llama 3, Dubey et al. 2024, section 3.3.2). A
// rank has two chunks of T/2 tokens of a row, as far from its two ends (zigzag): so each has as much of the causal
// half. It attends with all heads of its tokens over the keys and values of the whole row.
//
// Values: 0 keys and values of this rank (B, T, 2·nk·d); 1 those of all ranks (C, B, T, 2·nk·d); 2 queries (B, T,
// nh·d). Backward reads 1 and 2. The gradient of 0 is a sum over ranks: fp32.
#include "kernels/bias.hpp"
#include "kernels/convert.hpp"
#include "models/attention.hpp"
#include "runtime/base/transfer.hpp"

namespace tessera::models {
namespace {

constexpr int chunks = 2;  // of a row, on each rank

std::size_t bytes_of_elements(std::int64_t count, DType dtype) {
  return static_cast<std::size_t>(count) * size_of(dtype);
}

/// `count` elements of a view from element `at` on.
TensorView elements(const TensorView& of, std::int64_t at, std::int64_t count, DType dtype) {
  return {static_cast<std::byte*>(of.data) + bytes_of_elements(at, dtype), dtype, Shape{count}, of.device};
}

/// Columns [first, first + width) of rows of `pitch` elements, and a matrix of that width.
struct Columns {
  TensorView rows, matrix;
  std::int64_t pitch, first, width;
};
enum class Copy : unsigned char { out_of_rows, into_rows };
void copy_columns(const Columns& c, Copy direction, StreamView stream) {
  const DType dtype = c.rows.dtype;
  const std::size_t pitch = bytes_of_elements(c.pitch, dtype), width = bytes_of_elements(c.width, dtype);
  std::byte* const rows = static_cast<std::byte*>(c.rows.data) + bytes_of_elements(c.first, dtype);
  const auto count = static_cast<std::size_t>(c.rows.numel() / c.pitch);
  if (direction == Copy::out_of_rows)
    copy_rows(
        {.to = c.matrix.data, .to_pitch = width, .from = rows, .from_pitch = pitch, .width = width, .rows = count},
        stream);
  else
    copy_rows(
        {.to = rows, .to_pitch = pitch, .from = c.matrix.data, .from_pitch = width, .width = width, .rows = count},
        stream);
}

/// Keys and values by rank, (C, B, T, width), and by row, (B, C·T, width).
struct GatheredRows {
  TensorView parts, rows;
  std::int64_t ranks, batch, tokens, width;  // C, B, T
};
/// Chunk h of rank r is chunk r, or 2C - 1 - r, of the 2C of a row.
void copy_chunks(const GatheredRows& of, Copy direction, StreamView stream) {
  const DType dtype = of.rows.dtype;
  const std::int64_t chunk = of.tokens / chunks * of.width;
  const std::size_t part_pitch = bytes_of_elements(chunks * chunk, dtype),
                    row_pitch = bytes_of_elements(of.ranks * chunks * chunk, dtype);
  for (std::int64_t r = 0; r < of.ranks; ++r)
    for (int h = 0; h < chunks; ++h) {
      const std::int64_t place = h == 0 ? r : chunks * of.ranks - 1 - r;
      auto* const part =
          static_cast<std::byte*>(of.parts.data) + bytes_of_elements((r * of.batch * chunks + h) * chunk, dtype);
      auto* const row = static_cast<std::byte*>(of.rows.data) + bytes_of_elements(place * chunk, dtype);
      const bool out = direction == Copy::out_of_rows;
      copy_rows({.to = out ? part : row,
                 .to_pitch = out ? part_pitch : row_pitch,
                 .from = out ? row : part,
                 .from_pitch = out ? row_pitch : part_pitch,
                 .width = bytes_of_elements(chunk, dtype),
                 .rows = static_cast<std::size_t>(of.batch)},
                stream);
    }
}

}  // namespace

ModuleStages Attention::gathered_stages() const {
  return {.values = {{"keys and values", false}, {"gathered keys and values", true}, {"queries", true}},
          .stages = {{{}, {0, 2}}, {{1, 2}, {}}},
          .exchanges = {{{0, 0, 1, ExchangeKind::all_gather, ExchangeKind::reduce_scatter}, RankGroup::context}}};
}

std::size_t Attention::gathered_value_bytes(int value, BatchShape shape, DType dtype) const {
  const std::int64_t tokens = shape.batch * shape.tokens;
  if (value == 2) return bytes_of_elements(tokens * out_.in(), dtype);
  return bytes_of_elements(tokens * kv_width() * (value == 1 ? context_.ranks : 1), dtype);
}

kernels::AttentionShape Attention::chunk_shape(BatchShape shape) const {
  const std::int64_t tokens = shape.tokens / chunks, keys = shape.tokens * context_.ranks;
  return {.batch = 1,
          .tokens = tokens,
          .heads = heads_,
          .kv_heads = kv_heads_,
          .head_dim = head_dim_,
          .longest = shape.packed ? shape.num_positions() : 0,
          .keys = keys,
          .query_offset = keys - tokens,
          .window = rules_.window,
          .soft_cap = rules_.soft_cap,
          .sinks = sinks_ >= 0};
}

Attention::GatherScratch Attention::gather_scratch(ScratchAllocator& allocator, const StageSaved& s, BatchShape shape,
                                                   DType dtype, Phase phase, int stage, Direction direction) const {
  const std::int64_t rows = shape.batch * shape.tokens, keys = shape.tokens * context_.ranks;
  const bool back = direction == Direction::backward;
  GatherScratch w;
  if (stage == 0) {
    w.qkv = allocator.take(dtype, {rows, back ? qk_norm_rope_.width() : qk_norm_rope_.projected_width()});
    if (back && dtype != DType::f32) w.kv = allocator.take(dtype, {rows, kv_width()});
    w.heads = qk_norm_rope_.allocate(allocator, s.heads, shape, dtype, phase);
    if (back) w.norm = allocator.take_bytes(qk_norm_rope_.norm_workspace(dtype, shape.device));
  } else {
    w.row = allocator.take(dtype, {shape.batch, keys, kv_width()});
    if (back) w.drow = allocator.take(dtype, {shape.batch, keys, kv_width()});
    if (back) w.second = allocator.take(dtype, {keys, kv_width()});
    if (back || phase != Phase::train) w.out = allocator.take(dtype, {rows, out_.in()});
    const kernels::AttentionShape chunk = chunk_shape(shape);
    w.kernel = allocator.take_bytes(back ? kernels::attention_backward_workspace(chunk, dtype, shape.device)
                                         : kernels::attention_forward_workspace(chunk, dtype, shape.device));
  }
  w.lora = take_lora(allocator, shape, dtype);
  return w;
}

/// The arguments of the queries of one chunk of a row.
kernels::AttentionArgs Attention::chunk_args(const RowChunk& chunk, const TensorView& queries,
                                             const TensorView& row) const {
  const DType dtype = row.dtype;
  kernels::AttentionArgs args{.shape = chunk_shape(chunk.shape), .qkv = {}, .scale = scale_};
  if (sinks_ >= 0) args.sinks = at(chunk.params, sinks_);
  args.shape.query_offset = chunk.batch->row_begins[static_cast<std::size_t>(chunk.index)];
  const std::int64_t kv = kv_heads_ * head_dim_, keys = args.shape.keys, first = chunk.row * keys * kv_width();
  args.qkv.q = {elements(queries, chunk.first_token() * out_.in(), args.shape.tokens * out_.in(), dtype), out_.in()};
  args.qkv.k = {elements(row, first, keys * kv_width(), dtype), kv_width()};
  args.qkv.v = {elements(row, first + kv, keys * kv_width() - kv, dtype), kv_width()};
  if (chunk.shape.packed) args.positions = elements(chunk.batch->row_positions, chunk.row * keys, keys, DType::i32);
  return args;
}

void Attention::forward_gathered(const ForwardArgs& args, const TensorView& residual) const {
  TESSERA_ASSERT(args.phase != Phase::logits, "generation with ranks that share rows");
  const DType dtype = args.x.dtype;
  const bool train = args.phase == Phase::train;
  SavedAllocator saved_allocator(args.saved, args.kept);
  ScratchAllocator allocator(args.workspace);
  const StageSaved s = train ? stage_saved(saved_allocator, args.shape, dtype) : StageSaved{};
  const GatherScratch w = gather_scratch(allocator, s, args.shape, dtype, args.phase, args.stage, Direction::forward);
  if (args.stage == 0) {
    const TensorView heads = project(args, s.qkv ? s.qkv : w.qkv, w.heads, w.lora);
    const std::int64_t width = qk_norm_rope_.width();
    copy_columns({heads, args.values[2], width, 0, out_.in()}, Copy::out_of_rows, args.stream);
    copy_columns({heads, args.values[0], width, out_.in(), kv_width()}, Copy::out_of_rows, args.stream);
    return;
  }
  const std::int64_t tokens = args.shape.tokens / chunks;
  const TensorView out = train ? s.out : w.out;
  copy_chunks({args.values[1], w.row, context_.ranks, args.shape.batch, args.shape.tokens, kv_width()}, Copy::into_rows,
              args.stream);
  for (std::int64_t b = 0; b < args.shape.batch; ++b)
    for (int h = 0; h < chunks; ++h) {
      const RowChunk chunk{args.params, args.batch, args.shape, b, h};
      kernels::attention_forward(
          {.of = chunk_args(chunk, args.values[2], w.row),
           .out = out.rows(chunk.first_token(), tokens),
           .lse = train ? elements(s.lse, chunk.first_token() * heads_, tokens * heads_, s.lse.dtype) : TensorView{},
           .workspace = w.kernel},
          args.stream);
    }
  if (!args.writes_y) return;
  out_.forward({.params = args.params,
                .x = out,
                .y = args.y,
                .addend = residual,
                .context = linear_context(w.lora, args.batch, args.phase),
                .stream = args.stream});
}

void Attention::backward_gathered(const BackwardArgs& args) const {
  const bool through = through_attention(args.wanted());
  const DType dtype = args.x.dtype;
  SavedAllocator saved_allocator(args.saved, args.kept);
  ScratchAllocator allocator(args.workspace);
  const StageSaved s = stage_saved(saved_allocator, args.shape, dtype);
  const GatherScratch w =
      gather_scratch(allocator, s, args.shape, dtype, Phase::train, args.stage, Direction::backward);
  if (args.stage == 1) {
    out_.backward({.params = args.params,
                   .grads = args.grads(),
                   .x = s.out,
                   .dy = args.dy,
                   .dx = through ? w.out : TensorView{},
                   .context = linear_context(w.lora, args.batch, Phase::train),
                   .stream = args.stream});
    if (through) attend_gathered_backward(args, s, w);
    return;
  }
  if (!through) return;
  const std::int64_t width = qk_norm_rope_.width();
  TensorView kv = w.kv;
  if (kv)
    kernels::convert({.from = elements(args.value_gradients[0], 0, kv.numel(), DType::f32), .to = kv}, args.stream);
  else kv = args.value_gradients[0];
  copy_columns({w.qkv, args.value_gradients[2], width, 0, out_.in()}, Copy::into_rows, args.stream);
  copy_columns({w.qkv, kv, width, out_.in(), kv_width()}, Copy::into_rows, args.stream);
  (void)qk_norm_rope_.recompute(heads_args(args, w.heads), s.qkv);
  project_backward(args, {.saved = s.qkv, .dqkv = w.qkv, .heads = w.heads, .norm = w.norm, .lora = w.lora});
}

void Attention::attend_gathered_backward(const BackwardArgs& args, const StageSaved& s, const GatherScratch& w) const {
  const DType dtype = args.x.dtype;
  const std::int64_t tokens = args.shape.tokens / chunks, keys = args.shape.tokens * context_.ranks,
                     row = keys * kv_width(), kv = kv_heads_ * head_dim_;
  copy_chunks({args.values[1], w.row, context_.ranks, args.shape.batch, args.shape.tokens, kv_width()}, Copy::into_rows,
              args.stream);
  const TensorView dsinks = sinks_ >= 0 && args.wanted()[sinks_] ? args.grads()[sinks_] : TensorView{};
  for (std::int64_t b = 0; b < args.shape.batch; ++b) {
    const TensorView sum = elements(w.drow, b * row, row, dtype);
    for (int h = 0; h < chunks; ++h) {
      const RowChunk chunk{args.params, args.batch, args.shape, b, h};
      const TensorView to = h == 0 ? sum : elements(w.second, 0, row, dtype);
      kernels::QkvHeads dqkv;
      dqkv.q = {elements(args.value_gradients[2], chunk.first_token() * out_.in(), tokens * out_.in(), dtype),
                out_.in()};
      dqkv.k = {to, kv_width()};
      dqkv.v = {elements(to, kv, row - kv, dtype), kv_width()};
      kernels::attention_backward({.of = chunk_args(chunk, args.values[2], w.row),
                                   .dout = w.out.rows(chunk.first_token(), tokens),
                                   .out = elements(s.out, chunk.first_token() * out_.in(), tokens * out_.in(), dtype),
                                   .lse = elements(s.lse, chunk.first_token() * heads_, tokens * heads_, s.lse.dtype),
                                   .dqkv = dqkv,
                                   .dsinks = dsinks,
                                   .accumulate_dsinks = dsinks && (b > 0 || h > 0 || args.grads().adds(sinks_)),
                                   .workspace = w.kernel},
                                  args.stream);
    }
    kernels::add({.x = elements(w.second, 0, row, dtype), .y = sum}, args.stream);
  }
  copy_chunks({args.value_gradients[1], w.drow, context_.ranks, args.shape.batch, args.shape.tokens, kv_width()},
              Copy::out_of_rows, args.stream);
}

}  // namespace tessera::models
