// SPDX-License-Identifier: Apache-2.0
#pragma once
// QkNormRope: RMSNorm of each head of q and k, or of all heads together (qk-norm), then RoPE. Both are optional; GPT-2
// has neither. A norm without weights after RoPE, as of Llama 4, is the same as before it.

#include <memory>
#include <optional>

#include "models/module.hpp"
#include "models/norm.hpp"
#include "models/params.hpp"
#include "models/rope.hpp"
#include "models/scratch_allocator.hpp"

namespace tessera::models {

/// RMSNorm of q and k before rotation: names of the two weights; "": it has none.
struct QkNormSpec {
  std::string q, k;
  double eps = 1e-6;
  bool joint = false;  // one norm over all heads, with a weight for each number of them, in place of one a head
  double weight_offset = kernels::no_weight_offset;  // as of NormSpec
};

struct QkNormRopeSpec {
  std::int64_t heads = 0, kv_heads = 0, head_dim = 0;
  std::optional<QkNormSpec> norms;
  std::shared_ptr<const Rope> rope;  // null: no rotation
};

class QkNormRope {
 public:
  QkNormRope(const QkNormRopeSpec& spec, ParamList& params);
  /// A rank has so many of the heads from now on. A norm over all heads needs all of q and of k: the projections then
  /// have all of these, and the rank's heads of v. Other norms have the same weight for every head.
  void split(std::int64_t heads, std::int64_t kv_heads) {
    if (!joint_) projected_heads_ = heads, projected_kv_heads_ = kv_heads;
    heads_ = heads;
    kv_heads_ = kv_heads;
  }
  /// Whether a norm is over all heads.
  [[nodiscard]] bool is_joint() const { return joint_; }

  /// With qk-norm.
  struct Outputs {
    TensorView heads;    // (N, width): backward needs the projection unchanged
    TensorView rstd[2];  // (N·groups) of the norms of q and k, in training
  };
  [[nodiscard]] Outputs outputs(ScratchAllocator& allocator, BatchShape shape, DType dtype, Phase phase) const;
  struct Scratch {
    TensorView table;  // cosines and sines
    TensorView zeros;  // (d): in place of weights, where a norm has none
    /// (N, projected_width()), where a rank has some of the heads that a norm is over: its output, or its gradient.
    TensorView all;
    Outputs outputs;
  };
  /// `saved`: outputs() in memory that is kept until backward, with BatchShape::saves_outputs.
  [[nodiscard]] Scratch allocate(ScratchAllocator& allocator, const Outputs& saved, BatchShape shape, DType dtype,
                                 Phase phase) const;

  struct Args {
    Phase phase = Phase::train;
    BatchShape shape;
    std::span<const TensorView> params;
    const Batch* batch = nullptr;  // positions, tensor_rank
    Scratch scratch;
    std::int64_t longest = 0;  // tokens of the longest sequence that the pass is a part of: Rope::frequencies
    StreamView stream = host_stream;
  };
  /// Heads for attention (N, width) from the projections `qkv` (N, projected_width), columns q | k | v: rotated in
  /// place, or in scratch.outputs.
  [[nodiscard]] TensorView forward(const Args& args, const TensorView& qkv) const;
  /// Whether forward changes `qkv`, rather than leaving the heads in scratch.
  [[nodiscard]] bool in_place() const { return !normed_; }
  /// For backward: the heads again, from `qkv` as forward left it.
  [[nodiscard]] TensorView recompute(const Args& args, const TensorView& qkv) const;
  struct BackwardArgs {
    Gradients grads;
    TensorView qkv;          // (N, projected_width)
    TensorView dqkv;         // (N, width): the gradient of the heads; scratch afterwards
    bool write_dqkv = true;  // false: only the norms' weights are wanted
    TensorView workspace;    // norm_workspace bytes
  };
  /// The gradient of the projections (N, projected_width), in dqkv or in scratch. Call after recompute.
  [[nodiscard]] TensorView backward(const Args& args, const BackwardArgs& back) const;
  /// Whether the gradient of a norm's weight is wanted.
  [[nodiscard]] bool has_wanted(const Wanted& wanted) const {
    return weights_[0] >= 0 && (wanted[weights_[0]] || wanted[weights_[1]]);
  }
  [[nodiscard]] std::size_t norm_workspace(DType dtype, Device device) const;

  [[nodiscard]] std::int64_t width() const { return (heads_ + 2 * kv_heads_) * head_dim_; }
  [[nodiscard]] std::int64_t projected_width() const {
    return (projected_heads_ + projected_kv_heads_ + kv_heads_) * head_dim_;
  }

 private:
  /// Columns of q (0) and k (1) in the projections, and the numbers that a norm is of: a head or all heads.
  struct Part {
    std::int64_t column, columns, group;
    [[nodiscard]] std::int64_t groups() const { return columns / group; }
  };
  [[nodiscard]] Part part(int which) const {
    const std::int64_t columns = (which == 0 ? projected_heads_ : projected_kv_heads_) * head_dim_;
    return {which == 0 ? 0 : projected_heads_ * head_dim_, columns, joint_ ? columns : head_dim_};
  }
  /// Whether the projections have heads that are other ranks'.
  [[nodiscard]] bool projects_others() const { return projected_heads_ != heads_; }
  /// Copies the columns of this rank's heads of q and k: out of `all` (N, projected_width) to `own` (N, width), or
  /// back.
  enum class Columns : unsigned char { out_of_all, into_all };
  void copy_own(const Args& args, const TensorView& all, const TensorView& own, Columns direction) const;
  /// Those of v.
  [[nodiscard]] TensorView projected_v(const TensorView& all) const {
    return columns(all, (projected_heads_ + projected_kv_heads_) * head_dim_, kv_heads_ * head_dim_);
  }
  [[nodiscard]] TensorView own_v(const TensorView& own) const {
    return columns(own, (heads_ + kv_heads_) * head_dim_, kv_heads_ * head_dim_);
  }
  void make_table(const Args& args) const;
  void rotate(const Args& args, const TensorView& x, bool back) const;
  void norm(const Args& args, const TensorView& qkv) const;
  /// The weight of the norm of q (0) or k (1), as a parameter or zeros, to which weight_offset_ is added.
  [[nodiscard]] const TensorView& weight(const Args& args, int which) const {
    return weights_[which] >= 0 ? at(args.params, weights_[which]) : args.scratch.zeros;
  }

  std::int64_t heads_, kv_heads_, head_dim_;
  std::int64_t projected_heads_, projected_kv_heads_;  // of q and k in the projections
  bool normed_ = false;
  int weights_[2] = {-1, -1};  // weights of the norms of q and k; -1: none
  double eps_ = 0, weight_offset_ = kernels::no_weight_offset;
  bool joint_ = false;
  std::shared_ptr<const Rope> rope_;
};

}  // namespace tessera::models
