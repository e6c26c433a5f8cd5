// SPDX-License-Identifier: Apache-2.0
#pragma once
// Losses of pairs of sequences, and of single labelled ones, as functions of the log-probabilities of their tokens:
// DPO, CPO, SimPO and their kind; KTO. Of pairs, sequences 2k and 2k + 1 are the chosen and the rejected one of pair k.
// The gradient with respect to logits is that of cross-entropy with a weight for each token (linear_cross_entropy),
// which is computed here.

#include "kernels/linear_cross_entropy.hpp"

namespace tessera::kernels {

/// The function of a pair's margin Δ = ρ(chosen) - ρ(rejected), ρ being the log-probability less the reference's; σ is
/// the logistic function, ε label_smoothing. Formulas and names are TRL's; label_smoothing of sigmoid is ms-swift's.
///   sigmoid  -(1-ε)·log σ(βΔ) - ε·log σ(-βΔ)
///   robust   (-(1-ε)·log σ(βΔ) + ε·log σ(-βΔ)) / (1-2ε)
///   hinge    max(0, 1 - βΔ)
///   exo_pair  σ(βΔ)·(log σ(βΔ) - log(1-ε)) + σ(-βΔ)·(log σ(-βΔ) - log ε)
///   discopop  -log σ(βΔ)·(1-m) + e^(-βΔ)·m, m = σ(βΔ/discopop_tau)
///   ipo      (Δ - 1/(2β))²
///   simpo    sigmoid of βΔ - γ in place of βΔ
/// Of the two ρ, and not of their difference alone:
///   nca_pair   -log σ(βρ) - ½·log σ(-βρ) of chosen, -½·log σ(-βρ) of rejected
///   bco_pair   -log σ(βρ) of chosen, -log σ(-βρ) of rejected
///   sppo_hard  (ρ - 1/(2β))² of chosen, (ρ + 1/(2β))² of rejected
///   apo_zero   1 - σ(βρ) of chosen, σ(βρ) of rejected
///   apo_down   σ(βρ) of chosen, 1 - σ(βΔ)
/// Of pairs that are sorted together (match_sorted), sigmoid of another Δ:
///   aot           a pair's own margin of log-probabilities less the reference's margin of the same rank
///   aot_unpaired  ρ of chosen less the ρ of a rejected sequence that has the same rank
///   none       0: the cross-entropy is the loss (sft)
///   orpo     -β·log σ(log-odds of chosen - log-odds of rejected), of mean log-probabilities; no reference
/// Of labelled sequences, λ being desirable_weight or undesirable_weight, z₀ LabelledLossArgs::kl:
///   kto                λ·(1 - σ(β(ρ - z₀))) of a desirable one, λ·(1 - σ(β(z₀ - ρ))) of an undesirable one
///   apo_zero_unpaired  the same with z₀ = 0
enum class PreferenceKind : unsigned char {
  sigmoid,
  robust,
  hinge,
  ipo,
  simpo,
  orpo,
  exo_pair,
  discopop,
  nca_pair,
  bco_pair,
  sppo_hard,
  apo_zero,
  apo_down,
  aot,
  aot_unpaired,
  none,
  kto,
  apo_zero_unpaired
};

/// What a ρ becomes before it is in Δ: the derivative of an f-divergence at e^ρ, as TRL's, of which reverse_kl is
/// DPO's.
///   reverse_kl        ρ
///   forward_kl        1 - e^(-ρ)
///   js_divergence     log 2 + log σ(ρ)
///   alpha_divergence  (e^((α-1)ρ) - 1) / (α-1), the exponent at most 80
enum class Divergence : unsigned char { reverse_kl, forward_kl, js_divergence, alpha_divergence };

/// How the loss of a pair is computed: from Δ, from both ρ (rarer losses), from Δ with a divergence, or from sorted
/// pairs.
enum class PairForm : unsigned char { margin, ratio, diverging, sorted };

struct PreferenceSpec {
  PreferenceKind kind = PreferenceKind::sigmoid;
  double beta = 0.1;
  double label_smoothing = 0;
  double gamma = 0;  // of simpo
  double discopop_tau = 0.05;
  Divergence divergence = Divergence::reverse_kl;  // of sigmoid, robust, hinge and ipo
  double alpha = 0.5;                              // of alpha_divergence; not 1
  bool mean = false;          // log-probabilities are divided by the sequence's number of targets (ipo, simpo, orpo)
  bool rewards_mean = false;  // so are those that rewards and logps are made of
  double nll = 0;             // weight of the chosen sequences' cross-entropy, a mean over their targets
  /// LD-DPO: in a log-probability, the weight of the targets of the longer sequence of a pair past as many as the other
  /// one has. The cross-entropy is of all targets alike.
  double tail_weight = 1;
  /// WPO: the loss of a pair is multiplied by e^(mean of log p - log Σp² over the targets) of both sequences, which has
  /// no gradient; needs SequenceRows::log_sum_squares.
  bool weighted = false;
  double desirable_weight = 1, undesirable_weight = 1;  // of labelled sequences
  [[nodiscard]] bool sorted() const { return kind == PreferenceKind::aot || kind == PreferenceKind::aot_unpaired; }
  /// Of a loss of pairs.
  [[nodiscard]] PairForm form() const {
    if (sorted()) return PairForm::sorted;
    if (kind >= PreferenceKind::exo_pair) return PairForm::ratio;
    return divergence != Divergence::reverse_kl ? PairForm::diverging : PairForm::margin;
  }
  [[nodiscard]] bool labelled() const { return kind >= PreferenceKind::kto; }
};

/// Sums over pairs or labelled sequences that a step adds up, as integers in units of preference_unit, so that order
/// does not change them. nll: -log p of the chosen sequences' targets, and how many there are (a plain count). kl: ρ of
/// the sequences without a label. chosen_rows, rejected_rows: plain counts of labelled sequences; 0 of pairs.
enum class PreferenceSum : unsigned char {
  chosen_reward,
  rejected_reward,
  chosen_logp,
  rejected_logp,
  nll,
  nll_targets,
  kl,
  chosen_rows,
  rejected_rows,
};
inline constexpr int num_preference_sums = 9;
inline constexpr double preference_unit = 0x1p-24;

/// Log-probabilities of the targets of R sequences, 0 where a target is ignored: (R, T), or with `ends` (1, T).
struct SequenceRows {
  TensorView log_probs;  // fp32
  TensorView targets;    // int32, ignore_index where there is none
  /// (R) int32: the sequences are one row, end to end, and end there. Absent: each is a row.
  TensorView ends = {};
  TensorView log_sum_squares = {};  // fp64: log Σp² of each target (LinearCrossEntropyArgs); for spec.weighted alone
  [[nodiscard]] std::int64_t count() const { return ends ? ends.numel() : targets.shape[0]; }  // R
};

struct PreferenceLossArgs {
  PreferenceSpec spec;
  SequenceRows rows;  // R even; `weights` have the shape of its log-probabilities
  /// (R) fp64: the reference's log-probability of each sequence; absent: 0.
  TensorView reference_sums;
  TensorView matched;  // (R) fp64, of match_sorted; for aot and aot_unpaired alone
  /// (R) fp32, of the chosen ones alone: pairs of the global batch over targets of its chosen sequences, by which the
  /// cross-entropy is a mean over these; read if spec.nll is not 0.
  TensorView nll_weights;
  /// fp32, written: the cross-entropy weight of each target; absent: not wanted.
  TensorView weights;
  LossSums* sums = nullptr;  // adds each pair: its loss without the cross-entropy, one token, right if ρ is larger
  std::int64_t* metrics = nullptr;  // (num_preference_sums), added to; null: not wanted
  double factor = 1;                // of the pairs' loss, in sums and weights; not of the cross-entropy
  /// One more loss of pairs that have been counted: adds to `weights`, and of the sums to the loss alone.
  bool is_further = false;
};
void preference_loss(const PreferenceLossArgs& args, StreamView stream);

struct LabelledLossArgs {
  PreferenceSpec spec;
  SequenceRows rows;
  TensorView reference_sums;  // (R) fp64; absent: 0
  TensorView labels;          // (R) fp32: 1 desirable, -1 undesirable, 0 none: it counts in PreferenceSum::kl alone
  TensorView kl;              // (R) fp64: z₀ of each
  TensorView weights;         // fp32, written: the cross-entropy weight of each target; absent: not wanted
  LossSums* sums = nullptr;   // adds each labelled one: its loss, one token
  std::int64_t* metrics = nullptr;  // (num_preference_sums), added to; null: not wanted
};
void labelled_loss(const LabelledLossArgs& args, StreamView stream);

/// The log-probability of each sequence: the sum over its targets, in fp64, in an order that T does not change.
struct SumSequencesArgs {
  SequenceRows rows;
  TensorView sums;         // (R) fp64, written
  double tail_weight = 1;  // of pairs, PreferenceSpec's
};
void sum_sequences(const SumSequencesArgs& args, StreamView stream);

/// Sorts values of R/2 pairs, and leaves for each sequence the value of the other kind that has its rank; equal ones
/// are in the order of the pairs.
///   aot           margins of log-probabilities, and of the reference's: for both of a pair the latter
///   aot_unpaired  ρ of the chosen ones, and of the rejected ones
struct MatchSortedArgs {
  PreferenceKind kind = PreferenceKind::aot;
  SequenceRows rows;          // R even
  TensorView reference_sums;  // (R) fp64; absent: 0
  TensorView scratch;         // (2, R) fp64
  TensorView matched;         // (R) fp64, written
  double tail_weight = 1;     // PreferenceSpec's
};
void match_sorted(const MatchSortedArgs& args, StreamView stream);

}  // namespace tessera::kernels
