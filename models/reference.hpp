// SPDX-License-Identifier: Apache-2.0
#pragma once
// A reference model beside the one that is trained: it runs forward in the same step, for a loss that compares the two
// (DPO, KTO, a penalty on the distance from the model before training). It has no backward.

#include "models/module.hpp"

namespace tessera::models {

/// Whose parameters a reference model reads.
enum class ReferenceParams : unsigned char {
  shared,  // the model's own: the reference is the model without its adapters
  own,     // frozen ones, which are appended to Model::params as "reference.<name>"
};

inline constexpr const char* reference_prefix = "reference.";  // of names of parameters and units

/// Sets Model::reference to the modules of `reference`. Its last module computes its loss in Phase::eval, with
/// Batch::sums null: that loss writes Batch::reference, which the loss of the model reads, in training and evaluation.
/// Before the plan, after adapters are added. Model::max_tokens becomes the smaller one of the two. Of its own, the
/// reference may be of another family and size, and quantized (quantize). Throws Error (usage) if the two differ in
/// vocabulary or dtype, or, with `shared`, if the parameters of `reference` are not the first ones of the model.
void add_reference(Model& model, Model reference, ReferenceParams params);

/// FLOPs of a forward pass of a model and of its reference, as FlopTerms::of counts them.
[[nodiscard]] double forward_flops(const Model& model, double tokens, double squares);

}  // namespace tessera::models
