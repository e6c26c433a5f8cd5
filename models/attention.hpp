// SPDX-License-Identifier: Apache-2.0
#pragma once
// Causal self-attention as a sublayer: QKV projections, qk-norm and RoPE, attention, output projection. Grouped-query
// if kv_heads < heads; head_dim need not be width/heads. Where ranks share rows, it has stages: attention_stages.cpp
// (heads are exchanged for tokens), attention_gathered.cpp (keys and values are gathered).

#include "kernels/attention.hpp"
#include "kernels/attention_cache.hpp"
#include "kernels/head_parts.hpp"
#include "models/fused_linears.hpp"
#include "models/qk_norm_rope.hpp"
#include "models/sublayer.hpp"

namespace tessera::models {

/// What a family may ask of attention besides: see kernels/attention.hpp.
struct AttentionRules {
  double scale = 0;                // 0: head_dim^-0.5
  std::int64_t window = 0;         // 0: none
  double soft_cap = 0;             // 0: none
  std::optional<ParamSpec> sinks;  // a parameter of shape (heads)
};

struct AttentionSpec {
  QkNormRopeSpec heads;
  std::vector<LinearSpec> qkv;  // in C; one with columns q | k | v, or three: q, k, v
  LinearSpec out;               // in heads·head_dim, out C
  AttentionRules rules = {};
};

/// True if attention of packed rows takes a list of their documents (Batch::document_starts), besides positions.
[[nodiscard]] bool wants_document_list(DType dtype, Device device);

class Attention final : public Sublayer {
 public:
  Attention(const AttentionSpec& spec, ParamList& params);

  void adapt(AdapterMaker& adapters) override;
  [[nodiscard]] std::string context_refusal(ContextShare share) const override;
  void set_context(ContextShare share) override { context_ = share; }
  void split(const TensorSplit& over) override;
  [[nodiscard]] ModuleStages stages() const override;
  [[nodiscard]] std::size_t value_bytes(int value, BatchShape shape, DType dtype) const override;
  [[nodiscard]] std::size_t value_gradient_bytes(int value, BatchShape shape, DType dtype) const override;
  void forward(const ForwardArgs& args, const TensorView& residual) const override;
  void backward(const BackwardArgs& args) const override;
  [[nodiscard]] SavedBytes saved_bytes(BatchShape shape, DType dtype) const override;
  [[nodiscard]] std::size_t workspace_bytes(BatchShape shape, DType dtype, Phase phase) const override;
  [[nodiscard]] std::size_t cache_bytes(CacheShape capacity, DType dtype) const override;
  [[nodiscard]] bool has_wanted(const Wanted& wanted) const override;
  [[nodiscard]] bool backward_reads_input(const Wanted& wanted) const override;
  [[nodiscard]] double recompute_flops(BatchShape shape, const RecomputeTask& what) const override;
  [[nodiscard]] double backward_flops(BatchShape shape, const Wanted& wanted) const override;

 private:
  struct Saved {
    TensorView qkv;             // recomputed: (B·T, projected_width), as QkNormRope::forward leaves it
    TensorView out;             // kept: (B·T, nh·d), before the projection
    TensorView lse;             // kept: (B, nh, T)
    QkNormRope::Outputs heads;  // with BatchShape::saves_outputs
  };
  struct ForwardScratch {
    QkNormRope::Scratch heads;
    TensorView kernel, lora;  // bytes
  };
  struct BackwardScratch {
    QkNormRope::Scratch heads;
    TensorView dout;          // (B·T, nh·d)
    TensorView dqkv;          // (B·T, width)
    TensorView kernel, norm;  // bytes; `norm` reuses the memory of `kernel`
    TensorView lora;          // bytes
  };
  [[nodiscard]] Saved saved(SavedAllocator& allocator, BatchShape shape, DType dtype) const;
  [[nodiscard]] ForwardScratch forward_scratch(ScratchAllocator& allocator, const Saved& s, BatchShape shape,
                                               DType dtype, Phase phase) const;
  [[nodiscard]] BackwardScratch backward_scratch(ScratchAllocator& allocator, const Saved& s, BatchShape shape,
                                                 DType dtype) const;
  [[nodiscard]] kernels::AttentionCache cache(ScratchAllocator& allocator, CacheShape capacity, DType dtype) const;
  /// The kernels' arguments for `heads` (B·T, width).
  [[nodiscard]] kernels::AttentionArgs kernel_args(std::span<const TensorView> params, BatchShape shape, Phase phase,
                                                   const TensorView& heads) const;
  /// Appends the keys and values of a first pass: of a ring the last ones of each row, without its padding.
  void append_first(const ForwardArgs& args, const kernels::AttentionArgs& of,
                    const kernels::AttentionCache& cache) const;
  /// Attention of `heads` (B·T, width) into `s.out`: among the tokens of this pass, or with those of the cache.
  void attend(const ForwardArgs& args, const Saved& s, const TensorView& heads, const TensorView& scratch) const;
  /// Keys that a query of the FLOP count sees: the causal half is not subtracted.
  [[nodiscard]] double counted_keys(BatchShape shape) const {
    return static_cast<double>(rules_.window > 0 ? std::min(shape.tokens * context_.ranks, rules_.window)
                                                 : shape.tokens * context_.ranks);
  }
  [[nodiscard]] std::size_t kernel_bytes(BatchShape shape, DType dtype, Phase phase) const;
  [[nodiscard]] kernels::AttentionShape kernel_shape(BatchShape shape, Phase phase) const;
  /// Whether backward goes through attention: for dx, or for parameters before it.
  [[nodiscard]] bool through_attention(const Wanted& wanted) const;
  /// Whether the gradient of the projections' outputs is wanted.
  [[nodiscard]] bool through_heads(const Wanted& wanted) const;
  [[nodiscard]] TensorView take_lora(ScratchAllocator& allocator, BatchShape shape, DType dtype) const;
  [[nodiscard]] QkNormRope::Args heads_args(const BackwardArgs& args, const QkNormRope::Scratch& scratch) const;
  struct ProjectBackward {
    TensorView saved, dqkv;  // dqkv (B·T, width): the gradient of the heads
    QkNormRope::Scratch heads;
    TensorView norm, lora;
  };
  /// After QkNormRope::recompute, and attention's backward.
  void project_backward(const BackwardArgs& args, const ProjectBackward& of) const;

  // attention_stages.cpp: with ranks that share rows. T is here of a rank, and C·T of a row.
  struct StageSaved {
    TensorView qkv;             // (B·T, projected_width), with qk-norm, whose backward reads it
    QkNormRope::Outputs heads;  // with BatchShape::saves_outputs
    TensorView out;             // (B, C·T, heads of this rank): of attention
    TensorView lse;             // (B, heads of this rank, C·T)
  };
  struct StageScratch {
    QkNormRope::Scratch heads;
    TensorView rows;          // (B·T, projected_width or nh·d): before the first exchange, or after the last; or its
                              // gradient (B·T, width or nh·d)
    TensorView drows;         // the same, with `rows`
    TensorView row, drow;     // (B, C·T, width of a part): of a row
    TensorView out;           // (B, C·T, heads of this rank), or its gradient
    TensorView kernel, norm;  // bytes
    TensorView lora;          // bytes
  };
  enum class Direction : unsigned char { forward, backward };
  [[nodiscard]] kernels::HeadParts parts_of_qkv() const { return {context_.ranks, heads_, kv_heads_, head_dim_}; }
  [[nodiscard]] kernels::HeadParts parts_of_out() const { return {context_.ranks, heads_, 0, head_dim_}; }
  [[nodiscard]] kernels::AttentionShape row_shape(BatchShape shape) const;
  /// Those of this rank's heads, or their gradients.
  [[nodiscard]] TensorView own_sinks(const TensorView& sinks, const Batch* batch, BatchShape shape) const;
  [[nodiscard]] kernels::AttentionArgs row_args(std::span<const TensorView> params, const Batch* batch,
                                                BatchShape shape, const TensorView& qkv) const;
  [[nodiscard]] StageSaved stage_saved(SavedAllocator& allocator, BatchShape shape, DType dtype) const;
  [[nodiscard]] StageScratch stage_scratch(ScratchAllocator& allocator, const StageSaved& s, BatchShape shape,
                                           DType dtype, Phase phase, int stage, Direction direction) const;
  [[nodiscard]] std::size_t stage_workspace_bytes(BatchShape shape, DType dtype, Phase phase) const;
  void forward_stage(const ForwardArgs& args, const TensorView& residual) const;
  void send_heads(const ForwardArgs& args, const StageSaved& s, const StageScratch& w) const;
  void attend_rows(const ForwardArgs& args, const StageSaved& s, const StageScratch& w) const;
  void backward_stage(const BackwardArgs& args) const;
  void attend_rows_backward(const BackwardArgs& args, const StageSaved& s, const StageScratch& w) const;
  void send_heads_backward(const BackwardArgs& args, const StageSaved& s, const StageScratch& w) const;
  /// The projections of x in `qkv`, as heads for attention.
  [[nodiscard]] TensorView project(const ForwardArgs& args, const TensorView& qkv, const QkNormRope::Scratch& scratch,
                                   const TensorView& lora) const;

  // attention_gathered.cpp. Of StageSaved, `out` is (B·T, nh·d) and `lse` (B, 2, nh, T/2).
  struct GatherScratch {
    QkNormRope::Scratch heads;
    TensorView qkv;                 // (B·T, projected_width), or the gradient of the heads (B·T, width)
    TensorView kv;                  // (B·T, 2·nk·d): the gradient of the first value, rounded
    TensorView row, drow;           // (B, C·T, 2·nk·d)
    TensorView second;              // (C·T, 2·nk·d): a row's gradient from the second chunk of the queries
    TensorView out;                 // (B·T, nh·d), or its gradient
    TensorView kernel, norm, lora;  // bytes
  };
  /// One of the two chunks of a row that this rank has.
  struct RowChunk {
    std::span<const TensorView> params;
    const Batch* batch;
    BatchShape shape;
    std::int64_t row;
    int index;
    [[nodiscard]] std::int64_t first_token() const { return row * shape.tokens + index * (shape.tokens / 2); }
  };
  [[nodiscard]] std::int64_t kv_width() const { return 2 * kv_heads_ * head_dim_; }
  [[nodiscard]] ModuleStages gathered_stages() const;
  [[nodiscard]] std::size_t gathered_value_bytes(int value, BatchShape shape, DType dtype) const;
  [[nodiscard]] kernels::AttentionShape chunk_shape(BatchShape shape) const;
  [[nodiscard]] kernels::AttentionArgs chunk_args(const RowChunk& chunk, const TensorView& queries,
                                                  const TensorView& row) const;
  [[nodiscard]] GatherScratch gather_scratch(ScratchAllocator& allocator, const StageSaved& s, BatchShape shape,
                                             DType dtype, Phase phase, int stage, Direction direction) const;
  void forward_gathered(const ForwardArgs& args, const TensorView& residual) const;
  void backward_gathered(const BackwardArgs& args) const;
  void attend_gathered_backward(const BackwardArgs& args, const StageSaved& s, const GatherScratch& w) const;

  std::int64_t heads_, kv_heads_, head_dim_;
  ContextShare context_;
  double scale_;
  AttentionRules rules_;
  FusedLinears qkv_;
  Linear out_;
  QkNormRope qk_norm_rope_;
  int sinks_ = -1;  // -1: none
};

}  // namespace tessera::models
