// SPDX-License-Identifier: Apache-2.0
#pragma once
// RecurrentBlock: a gated linear recurrence with a residual connection, as a Tessera module.
// Tessera itself has nothing like it.
//
//   n = norm(x);  u = sigmoid(n·Wg + bg) ⊙ (n·Wv);  h_t = a ⊙ h_{t-1} + (1 - a) ⊙ u_t, a = sigmoid(decay);  y = x +
//   h·Wo
//
// Position t sees positions up to t, as a language model must. No word in here is about ranks.

#include <models/linear.hpp>
#include <models/module.hpp>
#include <models/norm.hpp>
#include <models/scratch_allocator.hpp>

namespace recurrent {

using tessera::DType;
using tessera::TensorView;
namespace models = tessera::models;

class RecurrentBlock final : public models::Module {
 public:
  /// Appends the block's parameters to the model's; their names start with `name`.
  RecurrentBlock(std::string name, std::int64_t channels, std::vector<tessera::ParamSpec>& params);

  [[nodiscard]] std::string name() const override { return name_; }
  [[nodiscard]] std::span<const int> params() const override { return params_; }
  void forward(const models::ForwardArgs& args) const override;
  void backward(const models::BackwardArgs& args) const override;
  [[nodiscard]] std::size_t saved_bytes(models::BatchShape shape, DType dtype) const override;
  [[nodiscard]] std::size_t workspace_bytes(models::BatchShape shape, DType dtype, models::Phase phase) const override;
  [[nodiscard]] double forward_flops(models::BatchShape shape) const override;

 private:
  RecurrentBlock(std::string name, std::int64_t channels, models::ParamList list);

  /// What backward needs, in the module's `saved` bytes. In the other phases it lies in the workspace.
  struct Saved {
    models::Norm::Saved norm;
    TensorView gate, value, state;  // (B·T, C): before the sigmoid; n·Wv; h
  };
  [[nodiscard]] Saved saved(models::ScratchAllocator& allocator, models::BatchShape shape, DType dtype) const;
  struct Scratch {
    TensorView normed;                 // (B·T, C)
    TensorView dstate, dgate, dvalue;  // (B·T, C), train only
    TensorView norm;                   // bytes
  };
  [[nodiscard]] Scratch scratch(models::ScratchAllocator& allocator, models::BatchShape shape, DType dtype,
                                models::Phase phase) const;

  std::string name_;
  std::int64_t channels_;
  models::Norm norm_;
  models::Linear gate_, value_, out_;
  int decay_;
  std::vector<int> params_;
};

/// Embedding, `layers` of these blocks, and a head tied to the embedding.
[[nodiscard]] models::Model make_model(int layers, std::int64_t channels, std::int64_t vocab, std::int64_t max_tokens,
                                       DType dtype = DType::f32);

}  // namespace recurrent
