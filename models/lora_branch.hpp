// SPDX-License-Identifier: Apache-2.0
#pragma once
// LoraBranch: what an adapter adds to a Linear, or the adapters of all groups to a GroupedLinear. Knows its shapes and
// its positions among the module's parameters; owns no memory.

#include "kernels/linear_cross_entropy.hpp"
#include "models/group_params.hpp"
#include "models/lora.hpp"
#include "models/module.hpp"
#include "models/scratch_allocator.hpp"
#include "models/vocabulary_parts.hpp"

namespace tessera::models {

/// What a sublayer's Linears share during a pass.
struct LinearContext {
  TensorView lora;                        // scratch of the largest adapter: Linear::lora_workspace_bytes
  const DropoutState* dropout = nullptr;  // of adapters; null: none
  int tensor_rank = 0;                    // Batch::tensor_rank
};

/// The branch s·B(A(dropout(x))) of a Linear; of groups, for the rows of each group e, s·B_e·A_e·x, without dropout.
/// Its parts are those of Linear; all of them add to what is there.
class LoraBranch {
 public:
  LoraBranch(const AdapterMaker::Positions& at, std::int64_t in, std::int64_t out, const LoraSpec& spec)
      : a_{at.a, at.step, std::max<std::int64_t>(at.groups, 1)},
        b_{at.b, at.step, a_.groups},
        key_(at.key),
        in_(in),
        out_(out),
        rank_(spec.rank),
        scale_(spec.scale()),
        dropout_(at.groups > 0 ? 0 : spec.dropout) {}

  /// With the Linear's: B has a part of the outputs, or A one of the inputs; the other one is replicated, and what each
  /// rank adds to its gradient is a part of a sum.
  void split_outputs(const TensorSplit& over, const std::vector<std::int64_t>& sections);
  void split_inputs(const TensorSplit& over);
  /// Of a head, whose outputs are a vocabulary.
  void split_vocabulary(const TensorSplit& over);
  void repeat_outputs(int repeats, std::int64_t part) {
    repeats_ = repeats;
    out_ = part;
  }

  struct Args {
    std::span<const TensorView> params;
    Gradients grads;            // backward_params
    TensorView offsets = {};    // of groups: (groups + 1) int32
    TensorView x;               // (N, in); backward_input: its gradient
    std::int64_t x_stride = 0;  // as Linear's; without dropout
    TensorView y;               // (N, out), or its gradient
    std::int64_t y_stride;      // as Linear's
    LinearContext context;
    StreamView stream;
  };
  void forward(const Args& args) const;
  void backward_params(const Args& args) const;
  void backward_input(const Args& args) const;

  /// The half before B, for a head: its loss multiplies by B (kernels::LinearCrossEntropyArgs::low), or by what this
  /// rank has of it.
  struct Half {
    TensorView dropped;    // (N, in), in training: the input of A
    TensorView low, dlow;  // (N, r): A·dropped, and its gradient
  };
  [[nodiscard]] Half half(ScratchAllocator& allocator, std::int64_t rows, DType dtype, bool trains) const;
  /// Computes A·dropout(x) and returns the product that the loss adds. `wanted_low`: dlow is wanted. Without
  /// Args::grads no gradient is.
  [[nodiscard]] kernels::LinearCrossEntropyArgs::LowRank forward_half(const Args& args, const Half& half,
                                                                      bool wanted_low) const;
  /// From dlow: the gradient of A; and adds to that of the input, args.x, unless it is absent.
  void backward_half(const Args& args, const Half& half) const;

  [[nodiscard]] std::size_t workspace_bytes(std::int64_t rows, DType dtype) const;
  [[nodiscard]] bool has_wanted(const Wanted& wanted) const {
    return a_.num_wanted(wanted) > 0 || b_.num_wanted(wanted) > 0;
  }
  [[nodiscard]] double flops_per_row() const {
    return 2.0 * static_cast<double>(rank_) * static_cast<double>(in_ + out_);
  }
  /// Per row of equally large groups.
  [[nodiscard]] double backward_flops_per_row(const Wanted& wanted) const;

 private:
  struct Scratch {
    TensorView dropped;    // (N, in), with dropout: the input, or the gradient of it
    TensorView low, dlow;  // (N, r): A·x, and the gradient of it
  };
  [[nodiscard]] Scratch scratch(ScratchAllocator& allocator, std::int64_t rows, DType dtype) const;
  [[nodiscard]] TensorView dropped(const Args& args, const Scratch& w) const;
  void mask(const Args& args, const TensorView& from, const TensorView& to, Write write) const;
  /// c = alpha·a·M, or alpha·a·Mᵀ, M being A or B; or adds that to c.
  struct Product {
    const GroupParams& matrix;
    TensorView a, c;
    bool trans = false;
    double alpha = 1;
    bool add = false;
    std::int64_t stride_a = 0, stride_c = 0;
  };
  void multiply(const Args& args, const Product& of) const;
  /// dM = alpha·aᵀ·b, M being A or B.
  struct Gradient {
    const GroupParams& matrix;
    TensorView a, b;
    double alpha = 1;
    std::int64_t stride_a = 0, stride_b = 0;
  };
  void differentiate(const Args& args, const Gradient& of) const;
  /// low = A·x; dlow = s·dy·B
  void compute_low(const Args& args, const TensorView& x, const Scratch& w) const;
  void gradient_of_low(const Args& args, const Scratch& w) const;

  /// Of a replicated B, or of one with padding, the rows of the outputs that this rank has.
  [[nodiscard]] TensorView own_rows(const TensorView& b, const Args& args) const {
    if (vocabulary_.is_split()) return vocabulary_.own(b, args.context.tensor_rank);
    return repeats_ > 0 ? b.rows(args.context.tensor_rank / repeats_ * out_, out_) : b;
  }
  [[nodiscard]] TensorView own_b(const Args& args) const;
  /// See Linear::own_gradient.
  [[nodiscard]] TensorView own_gradient_of_b(const Args& args) const;

  GroupParams a_, b_;
  std::uint64_t key_;
  std::int64_t in_, out_, rank_;
  int parts_ = 1;    // of the inputs: split_inputs
  int repeats_ = 0;  // see Linear
  VocabularyParts vocabulary_;
  double scale_, dropout_;
};

}  // namespace tessera::models
