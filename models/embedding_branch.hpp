// SPDX-License-Identifier: Apache-2.0
#pragma once
// EmbeddingBranch: what an adapter adds to an embedding, s·B·A[:, id]. A is (r, V) and B (C, r), as in PEFT, so the
// lookups are of one row of A at a time, and A[:, ids] is (r, N). There is no dropout.

#include "models/lora.hpp"
#include "models/params.hpp"
#include "models/vocabulary_parts.hpp"

namespace tessera::models {

class TensorSplit;

class EmbeddingBranch {
 public:
  EmbeddingBranch(const AdapterMaker::Positions& positions, std::int64_t vocab, const LoraSpec& spec)
      : at_(positions), vocabulary_{vocab}, rank_(spec.rank), scale_(spec.scale()) {}

  /// A has the columns of this rank's part of the vocabulary, and other tokens have a branch of 0.
  void split(const TensorSplit& over);

  struct Args {
    std::span<const TensorView> params;
    Gradients grads;       // backward
    TensorView ids;        // (B, T) int32
    TensorView y;          // (B, T, C), added to; backward: its gradient
    TensorView workspace;  // workspace_bytes(B·T, dtype of y, device)
    int tensor_rank = 0;   // Batch::tensor_rank
    StreamView stream;
  };
  void forward(const Args& args) const;
  void backward(const Args& args) const;

  [[nodiscard]] std::size_t workspace_bytes(std::int64_t rows, DType dtype, Device device) const;
  /// Of the forward pass; lookups have none.
  [[nodiscard]] double flops_per_row(std::int64_t channels) const {
    return 2.0 * static_cast<double>(rank_) * static_cast<double>(channels);
  }
  [[nodiscard]] double backward_flops_per_row(std::int64_t channels, const Wanted& wanted) const {
    return flops_per_row(channels) * ((wanted[at_.a] ? 1.0 : 0.0) + (wanted[at_.b] ? 1.0 : 0.0));
  }

 private:
  struct Scratch {
    TensorView low;     // (r, N): A[:, ids], or its gradient
    TensorView lookup;  // bytes: of embedding_backward
  };
  [[nodiscard]] Scratch scratch(const TensorView& workspace, std::int64_t rows, DType dtype, Device device) const;
  void look_up(const Args& args, const TensorView& low) const;

  AdapterMaker::Positions at_;
  VocabularyParts vocabulary_;
  std::int64_t rank_;
  double scale_;
};

}  // namespace tessera::models
