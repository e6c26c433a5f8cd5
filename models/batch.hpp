// SPDX-License-Identifier: Apache-2.0
#pragma once
// Batch: the named tensors of a micro-batch, and the normalizer of its loss.

#include <array>
#include <cstdint>
#include <span>
#include <string_view>

#include "kernels/attention_documents.hpp"
#include "kernels/balance.hpp"
#include "kernels/linear_cross_entropy.hpp"
#include "runtime/base/tensor.hpp"

namespace tessera::models {

/// How ranks that share rows attend to them.
enum class ContextKind : unsigned char {
  ulysses,  // heads are exchanged for tokens: a rank has some heads of whole rows. Its tokens are a range of a row
  gather,   // keys and values are gathered: a rank has all heads of its tokens, two ranges from a row's two ends
};
[[nodiscard]] constexpr const char* name_of(ContextKind kind) {
  return kind == ContextKind::ulysses ? "ulysses" : "gather";
}
/// Ranks that share rows: each has 1/C of the tokens of each row.
struct ContextShare {
  int ranks = 1;  // C
  ContextKind kind = ContextKind::ulysses;
};
/// Where in a row of C·T tokens the T are that a rank has: two ranges of T/2, which may be adjacent.
[[nodiscard]] constexpr std::array<std::int64_t, 2> row_begins(ContextShare share, int rank, std::int64_t tokens) {
  if (share.kind == ContextKind::ulysses) return {rank * tokens, rank * tokens + tokens / 2};
  return {rank * (tokens / 2), (2 * share.ranks - 1 - rank) * (tokens / 2)};
}

/// What the mask of dropout depends on besides the module and the feature.
struct DropoutState {
  std::uint64_t seed = 0;
  std::int64_t step = 0;
  std::int64_t first_token = 0;  // of the micro-batch, in the numbering of the global batch's tokens
  // T of the micro-batch, and how far a row begins after the one before it in that numbering, which counts the longest
  // rows that a run may have: a token's number does not depend on how long the rows beside it are.
  std::int64_t row_tokens = 1, row_stride = 1;
  std::int64_t second_half = 0;  // where the second half of a row's tokens begins, behind the first one; 0: adjacent
  std::int64_t skipped = 0;      // how many of the first tokens another rank has; rows are whole all the same
  /// In place of row_tokens, if the micro-batch is several rows end to end: the tokens of each, in host memory. What is
  /// left is padding.
  std::span<const std::int64_t> row_lengths = {};
};

/// What modules and the loss read of a micro-batch. The pointers are fixed; the values change between steps.
struct Batch {
  TensorView ids;      // (B, T) int32
  TensorView targets;  // (B, T) int32, ignore_index for no loss; absent in Phase::logits
  /// The normalizer, known before backward: 1 / valid tokens of the global batch, whatever their weights (a loss over
  /// pairs: 1 / pairs), times the gradient scale of fp16. Train only. In device memory on a device, as `sums`.
  const double* loss_scale = nullptr;
  kernels::LossSums* sums = nullptr;  // results are added to it; null for a reference model
  /// (B, T) fp32: written by the loss of a reference model, read by that of the model; absent: there is no reference.
  TensorView reference;
  /// (B) fp64: the reference's log-probability of each sequence, known beforehand, in place of `reference`.
  TensorView reference_sums;
  /// (B) int32, and B below too: where B sequences end that are one row, end to end; absent: each is a row.
  TensorView sequence_ends;
  TensorView nll_weights;  // (B) fp32: pairs over targets of chosen sequences (kernels::PreferenceLossArgs)
  TensorView labels;       // (B) fp32: of labelled sequences (kernels::LabelledLossArgs)
  TensorView kl;           // (B) fp64: of each, z₀
  TensorView margins;      // (B) fp32: of pairs with a margin (kernels::RewardLossArgs)
  /// (B) fp64: written by a loss that leaves a number for each sequence: its log-probability, or the score of a reward
  /// model.
  TensorView sequence_values;
  /// Of a loss over sequences: how many samples (pairs, labelled sequences) the micro-batch has; 0: the loss is a mean
  /// over valid tokens.
  std::int64_t samples = 0;
  std::int64_t* metrics = nullptr;  // Model::num_metrics sums of the loss, which it adds to; null: not wanted
  TensorView logits;                // (B, V) of the activations' type or fp32; Phase::logits only
  /// (B, T) int32; absent: 0 … T-1 in every row. In training and evaluation rows are packed: a document begins at
  /// position 0 and attends to itself alone. A document of one token without a target is padding (kernels/padding.hpp).
  TensorView positions;
  /// Where in its row each half begins of the T tokens that this rank, or its tensor group, has (models::row_begins);
  /// {0, T/2} without a context.
  std::array<std::int64_t, 2> row_begins = {0, 0};
  /// (B, C·T) int32: where C ranks share rows of documents, the positions of the whole rows, for attention; absent:
  /// `positions` are.
  TensorView row_positions;
  /// (B, N·T) int32: where N ranks have parts of matrices, and others parts of the same rows, the positions of the
  /// tokens that these N have together, for attention; absent: not both.
  TensorView part_positions;
  /// (B, N·T) int32: the ids and targets of the tokens that the N ranks have together, where these have parts of the
  /// vocabulary; absent in Phase::logits, in which `ids` are those.
  TensorView part_ids, part_targets;
  /// The same documents as a list (kernels::list_documents), of whole rows, int32 each, and its groups; absent: not
  /// wanted.
  TensorView document_starts, document_lengths;
  std::span<const kernels::DocumentGroup> document_groups = {};
  /// (B, T) fp32: factors of the targets' losses; absent: 1. The loss is Σ weight·loss over the number of targets, not
  /// over Σ weight.
  TensorView loss_weights;
  /// (layers with experts, 2, E) fp64: counts and probabilities, written by forward; absent: not wanted.
  TensorView router;
  /// (2) fp64, behind `router` in memory: kernels::CountTokensArgs::out. Where ranks share the rows or have parts of
  /// matrices, the head writes it, and then both are of all of them; absent: they do not.
  TensorView counted;
  DropoutState dropout;  // of adapters; train only
  int tensor_rank = 0;   // which part of divided matrices this rank has (split_tensors)
  /// (B) in host memory, Phase::logits only: tokens of each row before its padding; null: T in all.
  const std::int32_t* lengths = nullptr;
};

/// The tensors that a source of micro-batches fills, one value for each token or for each sequence. The plan has a
/// buffer of that name for each one that a run has, and the executor copies them to a device. A new one needs a member
/// of Batch, an enumerator, a row of the table, and its condition in plan::has_field.
enum class BatchField : unsigned char {
  ids,
  targets,
  positions,
  loss_weights,
  document_starts,
  document_lengths,
  reference_sums,
  nll_weights,
  labels,
  kl,
  row_positions,
  margins,
  part_positions,
  part_ids,
  part_targets,
  sequence_ends
};
/// Ranks that have the same micro-batches: how many there are, and how many of them have tokens of the same part of a
/// row.
struct RowSharing {
  int ranks = 1, tensor = 1;
};
struct BatchFieldInfo {
  BatchField field;
  const char* name;
  DType dtype;
  TensorView Batch::*tensor;
  enum class Per : unsigned char {
    token,
    sequence,    // a value for each row, or for each of the sequences that are one row end to end
    row_token,   // for each token of whole rows, which several ranks may share
    part_token,  // for each token of the part that the ranks of the tensor axis have
  } per = Per::token;
  /// How many ranks have the values' tokens together.
  [[nodiscard]] constexpr int ranks_of(RowSharing sharing) const {
    return per == Per::row_token ? sharing.ranks : per == Per::part_token ? sharing.tensor : 1;
  }
  /// Values in a micro-batch of so many rows (of Per::sequence: sequences) of so many tokens, on each of the ranks that
  /// share its rows.
  [[nodiscard]] constexpr std::int64_t numel(std::int64_t rows, std::int64_t tokens, RowSharing sharing) const {
    return per == Per::sequence ? rows : rows * tokens * ranks_of(sharing);
  }
};
inline constexpr std::array<BatchFieldInfo, 16> batch_fields = {
    {{BatchField::ids, "ids", DType::i32, &Batch::ids},
     {BatchField::targets, "targets", DType::i32, &Batch::targets},
     {BatchField::positions, "positions", DType::i32, &Batch::positions},
     {BatchField::loss_weights, "loss_weights", DType::f32, &Batch::loss_weights},
     {BatchField::document_starts, "document_starts", DType::i32, &Batch::document_starts,
      BatchFieldInfo::Per::row_token},
     {BatchField::document_lengths, "document_lengths", DType::i32, &Batch::document_lengths,
      BatchFieldInfo::Per::row_token},
     {BatchField::reference_sums, "reference_sums", DType::f64, &Batch::reference_sums, BatchFieldInfo::Per::sequence},
     {BatchField::nll_weights, "nll_weights", DType::f32, &Batch::nll_weights, BatchFieldInfo::Per::sequence},
     {BatchField::labels, "labels", DType::f32, &Batch::labels, BatchFieldInfo::Per::sequence},
     {BatchField::kl, "kl", DType::f64, &Batch::kl, BatchFieldInfo::Per::sequence},
     {BatchField::row_positions, "row_positions", DType::i32, &Batch::row_positions, BatchFieldInfo::Per::row_token},
     {BatchField::margins, "margins", DType::f32, &Batch::margins, BatchFieldInfo::Per::sequence},
     {BatchField::part_positions, "part_positions", DType::i32, &Batch::part_positions,
      BatchFieldInfo::Per::part_token},
     {BatchField::part_ids, "part_ids", DType::i32, &Batch::part_ids, BatchFieldInfo::Per::part_token},
     {BatchField::part_targets, "part_targets", DType::i32, &Batch::part_targets, BatchFieldInfo::Per::part_token},
     {BatchField::sequence_ends, "sequence_ends", DType::i32, &Batch::sequence_ends, BatchFieldInfo::Per::sequence}}};

/// Positions and targets, which tell what is padding. Results never depend on padding. packed: BatchShape::packed;
/// ranks that share other rows have positions too.
[[nodiscard]] inline kernels::TokenFields token_fields(const Batch& batch, bool packed) {
  if (!packed) return {{}, batch.targets};
  return {batch.row_positions ? batch.row_positions : batch.positions, batch.targets, batch.row_begins};
}
/// Inputs of the balance losses, once all layers have routed.
[[nodiscard]] inline kernels::BalanceArgs balance_of(const Batch& batch, bool packed) {
  return {batch.router, token_fields(batch, packed), batch.loss_scale, batch.samples, batch.counted};
}

}  // namespace tessera::models
