#pragma once
// QkNormRope: what happens to queries and keys between projection and attention: a norm of each head (qk-norm), and
// rotation by position. GPT-2 has neither, and then this does nothing.

#include <memory>
#include <optional>

#include "models/module.hpp"
#include "models/params.hpp"
#include "models/rope.hpp"
#include "models/scratch_allocator.hpp"

namespace tessera::models {

/// RMSNorm of each head of q and k: names of the two weights (head_dim); before rotation.
struct QkNormSpec {
  std::string q, k;
  double eps = 1e-6;
};

struct QkNormRopeSpec {
  std::int64_t heads = 0, kv_heads = 0, head_dim = 0;
  std::optional<QkNormSpec> norms;
  std::shared_ptr<const Rope> rope;  // null: no rotation
};

class QkNormRope {
 public:
  QkNormRope(const QkNormRopeSpec& spec, ParamList& params);

  struct Scratch {
    TensorView table;    // of rotation
    TensorView heads;    // (N, width), where heads are normed: the projection is kept as it is, for backward
    TensorView rstd[2];  // (N·heads) of q's and k's norms
  };
  [[nodiscard]] Scratch carve(ScratchAllocator& carver, BatchShape shape, DType dtype, Phase phase) const;

  struct Args {
    Phase phase = Phase::train;
    BatchShape shape;
    std::span<const TensorView> params;
    const Batch* batch = nullptr;  // positions
    Scratch scratch;
    StreamView stream = host_stream;
  };
  /// Heads for attention of the projections `qkv` (N, width), columns q | k | v: rotated in place, or in scratch.heads.
  [[nodiscard]] TensorView forward(const Args& args, const TensorView& qkv) const;
  /// The heads again, in backward, of what forward has left in `qkv`.
  [[nodiscard]] TensorView recompute(const Args& args, const TensorView& qkv) const;
  /// `dqkv`: gradient of the heads, becomes that of the projections. After recompute; `workspace`: norm_workspace
  /// bytes.
  void backward(const Args& args, const Gradients& grads, const TensorView& qkv, const TensorView& dqkv,
                const TensorView& workspace) const;
  [[nodiscard]] std::size_t norm_workspace(DType dtype) const;

  [[nodiscard]] std::int64_t width() const { return (heads_ + 2 * kv_heads_) * head_dim_; }

 private:
  /// The columns that are q's heads (0) and k's (1).
  struct Part {
    std::int64_t column, heads;
  };
  [[nodiscard]] Part part(int which) const {
    return which == 0 ? Part{0, heads_} : Part{heads_ * head_dim_, kv_heads_};
  }
  void make_table(const Args& args) const;
  void rotate(const Args& args, const TensorView& x, bool back) const;
  void norm(const Args& args, const TensorView& qkv) const;

  std::int64_t heads_, kv_heads_, head_dim_;
  int weights_[2] = {-1, -1};  // of the norms of q and k; -1: none
  double eps_ = 0;
  std::shared_ptr<const Rope> rope_;
};

}  // namespace tessera::models
