#pragma once
// Causal self-attention as a sublayer: one projection to queries, keys and values, heads, one projection back. Grouped-query
// where kv_heads < heads; head_dim need not be width/heads.

#include "kernels/attention.hpp"
#include "kernels/attention_cache.hpp"
#include "models/linear.hpp"
#include "models/sublayer.hpp"

namespace tessera::models {

struct AttentionSpec {
  std::int64_t heads = 0, kv_heads = 0, head_dim = 0;
  LinearSpec qkv;  // in C, out (heads + 2·kv_heads)·head_dim: columns q | k | v
  LinearSpec out;  // in heads·head_dim, out C
};

class Attention final : public Sublayer {
 public:
  Attention(const AttentionSpec& spec, ParamList& params);

  void forward(const ForwardArgs& args) const override;
  void backward(const BackwardArgs& args) const override;
  [[nodiscard]] std::size_t saved_bytes(BatchShape shape, DType dtype) const override;
  [[nodiscard]] std::size_t workspace_bytes(BatchShape shape, DType dtype, Phase phase) const override;
  [[nodiscard]] std::size_t cache_bytes(BatchShape room, DType dtype) const override;
  [[nodiscard]] double forward_flops(BatchShape shape) const override;

 private:
  struct Saved {
    TensorView qkv;  // (B·T, (nh + 2·nk)·d)
    TensorView out;  // (B·T, nh·d), before the projection
    TensorView lse;  // (B, nh, T)
  };
  struct Scratch {
    TensorView dout;     // (B·T, nh·d)
    TensorView dqkv;     // (B·T, (nh + 2·nk)·d)
    TensorView kernel;   // bytes
  };
  [[nodiscard]] Saved saved(Carver& carver, BatchShape shape, DType dtype) const;
  [[nodiscard]] Scratch backward_scratch(Carver& carver, BatchShape shape, DType dtype) const;
  [[nodiscard]] kernels::AttentionCache cache(Carver& carver, BatchShape room, DType dtype) const;
  /// Heads of q to `out`: among the tokens of this pass, or with those of the cache.
  void attend(const ForwardArgs& args, const Saved& s, const TensorView& scratch) const;
  [[nodiscard]] std::size_t forward_scratch_bytes(BatchShape shape, DType dtype, Phase phase) const;
  [[nodiscard]] kernels::AttentionShape kernel_shape(BatchShape shape) const;

  std::int64_t heads_, kv_heads_, head_dim_;
  double scale_;
  Linear qkv_, out_;
};

}  // namespace tessera::models
