// SPDX-License-Identifier: Apache-2.0
#pragma once
// Loss: what a head makes of its last hidden states and its weight. Cross-entropy is one; a model can be given another
// one without another head.

#include <memory>

#include "models/batch.hpp"
#include "models/module.hpp"

namespace tessera::models {

struct LossArgs {
  BatchShape shape;
  TensorView x;       // (B·T, C), after the final norm
  TensorView weight;  // (V, C): logits are x·weightᵀ, as `logits` changes it
  const Batch* batch = nullptr;
  TensorView workspace;  // workspace_bytes(shape, V, dtype of x)
  kernels::LogitRules logits = {};
  // Gradients of *batch->loss_scale · Σ loss. Absent: not wanted; without both, batch->loss_scale may be null.
  TensorView dx;                                      // (B·T, C), overwritten; may be x
  TensorView dweight;                                 // (V, C) of weight's type, or fp32 if that has 16 bits
  bool accumulate = false;                            // add to dweight, or overwrite it
  kernels::LinearCrossEntropyArgs::LowRank low = {};  // of an adapter: logits += alpha·low.x·low.weightᵀ
  StreamView stream = host_stream;
};

class Loss {
 public:
  virtual ~Loss() = default;
  /// Adds to *batch->sums: Σ loss, the number of its terms (`tokens`: valid tokens, or pairs), and how many of them are
  /// right. Computes the gradients that have memory.
  virtual void compute(const LossArgs& args) const = 0;
  /// How many sums it adds to Batch::metrics (Model::num_metrics).
  [[nodiscard]] virtual int num_metrics() const { return 0; }
  /// Whether it leaves a number for each sequence in Batch::sequence_values.
  [[nodiscard]] virtual bool writes_sequences() const { return false; }
  /// Pure, for the plan. `dtype`: of x.
  [[nodiscard]] virtual std::size_t workspace_bytes(BatchShape shape, std::int64_t vocab, DType dtype) const = 0;
};

/// Σ loss_weights · -log softmax(logits)[target] over the targets that are not ignore_index (loss_weights absent: 1);
/// logits exist in pieces only. A loss that is a function of log-probabilities has the gradient of this one with
/// weights -∂loss/∂(log-probability of the token).
[[nodiscard]] std::shared_ptr<const Loss> cross_entropy();

}  // namespace tessera::models
