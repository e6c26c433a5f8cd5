// SPDX-License-Identifier: Apache-2.0
#pragma once
// Losses of a head that is trained on pairs of sequences or on labelled ones, and what its reference model's head
// leaves for them.

#include <vector>

#include "kernels/preference_loss.hpp"
#include "models/loss.hpp"

namespace tessera::models {

/// The loss of pairs (kernels/preference_loss.hpp): sequences 2k and 2k + 1 of a micro-batch are the chosen and the
/// rejected one of pair k; of a labelled kind, Batch::labels says what each is. Log-probabilities of the reference:
/// Batch::reference_sums, else Batch::reference, else 0. Adds kernels::num_preference_sums sums to Batch::metrics.
/// Logits exist in pieces only, twice in training: for the log-probabilities, and for the gradient, whose weights
/// depend on them.
[[nodiscard]] std::shared_ptr<const Loss> preference_loss(const kernels::PreferenceSpec& spec);

/// A loss and its weight.
struct PreferenceTerm {
  kernels::PreferenceSpec spec;
  double weight = 1;
};
/// Σ weight·loss of pairs; the cross-entropy is that of the first, without a weight. Rewards are the first's. All have
/// the same tail_weight, and all or none are weighted.
[[nodiscard]] std::shared_ptr<const Loss> preference_loss(std::vector<PreferenceTerm> terms);

/// Of a reference model: leaves the log-probability of every target in Batch::reference.
[[nodiscard]] std::shared_ptr<const Loss> target_log_probs();

/// Of a pass before training: the log-probability of every sequence, in Batch::sequence_values. Sums are
/// cross-entropy's. `tail_weight`: of pairs, that of their loss.
[[nodiscard]] std::shared_ptr<const Loss> sequence_log_probs(double tail_weight = 1);

/// Gives the head of a model a loss.
void set_loss(Model& model, const std::shared_ptr<const Loss>& loss);

}  // namespace tessera::models
