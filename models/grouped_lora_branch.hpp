// SPDX-License-Identifier: Apache-2.0
#pragma once
// GroupedLoraBranch: what adapters add to a GroupedLinear, for the rows of each group e: s·B_e·A_e·x. Knows its shapes
// and the positions of the adapters among the module's parameters; owns no memory. There is no dropout.

#include "kernels/grouped_gemm.hpp"
#include "models/group_params.hpp"
#include "models/lora.hpp"
#include "models/scratch_allocator.hpp"

namespace tessera::models {

class GroupedLoraBranch {
 public:
  GroupedLoraBranch(const AdapterMaker::GroupPositions& at, std::int64_t groups, std::int64_t in, std::int64_t out,
                    const LoraSpec& spec)
      : a_{at.a, at.step, groups},
        b_{at.b, at.step, groups},
        in_(in),
        out_(out),
        rank_(spec.rank),
        scale_(spec.scale()) {}

  struct Args {
    std::span<const TensorView> params;
    Gradients grads;                          // backward_params
    TensorView offsets;                       // (groups + 1) int32
    TensorView x, y;                          // (N, in), (N, out), or their gradients
    std::int64_t stride_x = 0, stride_y = 0;  // as GroupedLinear's
    TensorView workspace;                     // workspace_bytes(N, dtype)
    StreamView stream;
  };
  /// Adds to y.
  void forward(const Args& args) const;
  /// From the input x, and y, the gradient of the output.
  void backward_params(const Args& args) const;
  /// Adds to x, the gradient of the input; from y, that of the output.
  void backward_input(const Args& args) const;

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
    TensorView low, dlow;  // (N, r): A·x, and the gradient of it
  };
  [[nodiscard]] Scratch scratch(ScratchAllocator& allocator, std::int64_t rows, DType dtype) const;
  void compute_low(const Args& args, const Scratch& w) const;
  void gradient_of_low(const Args& args, const Scratch& w) const;

  GroupParams a_, b_;
  std::int64_t in_, out_, rank_;
  double scale_;
};

}  // namespace tessera::models
