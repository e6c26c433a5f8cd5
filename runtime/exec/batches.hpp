// SPDX-License-Identifier: Apache-2.0
#pragma once
// Sources of micro-batches: samples of a token stream, split by the batch equation; or a prompt.

#include <algorithm>
#include <array>
#include <vector>

#include "io/data/packing.hpp"
#include "runtime/exec/executor.hpp"
#include "runtime/plan/batch.hpp"

namespace tessera::exec {

/// This rank's micro-batches of samples [first, first + count), in the sampler's order or, without one, in file order.
/// Rows that hold one document each (io::Packing::padded, pairs) are as long as the longest of their micro-batch. A
/// sample of pairs is `num_sequences` = 2 rows, which follow one another. One of unpaired is one row: the sequence that
/// `use_sequence` chose, the first one unless it was called. With `flat_tokens`, the most tokens that a micro-batch may
/// have, all these are one row, end to end. Where ranks share rows, each has a part of each.
class SampleBatches : public BatchSource {
 public:
  /// The ranks that share rows, and this one's place among them; and those that have parts of the same matrices, each
  /// of which has a part of a micro-batch's rows, or of their parts, end to end.
  struct Context {
    models::ContextShare share;
    int rank;
    int tensor_ranks, tensor_rank;
    [[nodiscard]] int ranks() const { return share.ranks * tensor_ranks; }
  };
  /// Of a row of `all` tokens a part, in two halves that begin at these places in the row, and what this rank has of
  /// it.
  struct RowPart {
    std::int64_t all, tokens;
    std::array<std::int64_t, 2> begins;
    std::int64_t first, count;
  };
  SampleBatches(const plan::BatchPlan& batch, int data_rank, std::int64_t tokens, std::int64_t flat_tokens = 0,
                int num_sequences = 1, Context context = {{}, 0, 1, 0})
      : batch_(batch),
        data_rank_(data_rank),
        tokens_(tokens),
        flat_tokens_(flat_tokens),
        num_sequences_(num_sequences),
        context_(context),
        tokens_of_(static_cast<std::size_t>(batch.accumulation), tokens),
        lengths_(flat_tokens > 0 ? static_cast<std::size_t>(batch.accumulation * batch.micro_batch * num_sequences)
                                 : 0),
        groups_(static_cast<std::size_t>(batch.accumulation)) {
    if (context.ranks() == 1) return;
    const auto longest = static_cast<std::size_t>(std::max(tokens, flat_tokens));
    row_.ids.resize(longest);
    row_.targets.resize(longest);
    row_.weights.resize(longest);
  }
  void set(const io::TokenStream& stream, const io::Sampler* sampler, std::int64_t first, std::int64_t count);
  /// Before set().
  void use_sequence(int sequence) { sequence_ = sequence; }
  void set_kl(double kl) { kl_ = kl; }  // Batch::kl of every row
  /// Tokens and targets in the micro-batches of all ranks. Of pairs this also sets the weight of cross-entropy in their
  /// loss (Batch::nll_weights).
  [[nodiscard]] io::PackedCounts work();
  /// What the loss is a mean over, of that work: its samples, of pairs and unpaired, or its targets.
  [[nodiscard]] std::int64_t num_terms(const io::PackedCounts& work) const {
    return has_sequences() ? count_ : work.targets;
  }
  /// The first sample of a micro-batch, in the order of the stream's use.
  [[nodiscard]] std::int64_t first_sample(int micro) const {
    return first_ + batch_.range(micro, data_rank_, count_).first;
  }

  [[nodiscard]] std::int64_t rows(int micro) const override {
    return flat_tokens_ > 0 ? std::min<std::int64_t>(sequences(micro), 1) : sequences(micro);
  }
  [[nodiscard]] std::int64_t sequences(int micro) const override {
    return batch_.range(micro, data_rank_, count_).count * num_sequences_;
  }
  /// A function of the samples in the micro-batch, so that the same micro-batch has the same bits on any rank.
  [[nodiscard]] std::int64_t tokens(int micro) const override { return row_tokens(micro) / context_.ranks(); }
  [[nodiscard]] std::array<std::int64_t, 2> row_begins(int micro) const override {
    return models::row_begins(context_.share, context_.rank, row_tokens(micro) / context_.share.ranks);
  }
  [[nodiscard]] std::int64_t first_row(int micro) const override {
    return batch_.range(micro, data_rank_, count_).first * num_sequences_;
  }
  [[nodiscard]] std::span<const std::int64_t> row_lengths(int micro) const override;
  void load(int micro, const BatchMemory& to) override;
  [[nodiscard]] std::span<const kernels::DocumentGroup> document_groups(int micro) const override {
    return groups_[static_cast<std::size_t>(micro)].list();
  }

 private:
  [[nodiscard]] std::int64_t sample(std::int64_t index) const { return sampler_ ? sampler_->sample(index) : index; }
  /// T of the rows of a micro-batch, on all the ranks that share them.
  [[nodiscard]] std::int64_t row_tokens(int micro) const { return tokens_of_[static_cast<std::size_t>(micro)]; }
  /// The tokens of a sequence whose row begins at token `at` of the micro-batch. Of several end to end the last one is
  /// followed by padding.
  [[nodiscard]] std::int64_t row_length(int micro, std::int64_t row, std::int64_t at) const;
  /// Which sample a sequence of a micro-batch is of, and which of the sample's.
  struct Place {
    std::int64_t sample;
    int sequence;
  };
  [[nodiscard]] Place place_of(int micro, std::int64_t row) const;
  [[nodiscard]] std::int64_t longest_row(int micro) const;
  [[nodiscard]] std::int64_t join_rows(int micro);
  void load_sequences(int micro, const BatchMemory& to) const;
  void load_parts(int micro, const BatchMemory& to);
  void load_row_part(std::int64_t sample, const BatchMemory& to, const RowPart& part);
  void load_rows(int micro, const BatchMemory& to) const;
  [[nodiscard]] bool has_sequences() const {
    return stream_->packed() != nullptr && stream_->packed()->packing() >= io::Packing::pairs;
  }

  plan::BatchPlan batch_;
  int data_rank_;
  std::int64_t tokens_, flat_tokens_;
  int num_sequences_;
  Context context_;
  int sequence_ = 0;
  float nll_weight_ = 0;
  double kl_ = 0;
  std::vector<std::int64_t> tokens_of_;          // by micro-batch: T of its rows, of all ranks that share them
  std::vector<std::int64_t> lengths_;            // end to end: of the sequences of each micro-batch
  std::vector<kernels::DocumentGroups> groups_;  // by micro-batch
  struct Row {
    std::vector<std::int32_t> ids, targets;
    std::vector<float> weights;
  } row_;  // a row of documents, of which this rank has a part; empty without a context
  const io::TokenStream* stream_ = nullptr;
  const io::Sampler* sampler_ = nullptr;
  std::int64_t first_ = 0, count_ = 0;
};

/// The T of rows whose longest has `longest` tokens: of each of `ranks` a multiple of 16, for the GEMMs, and at most
/// `limit`.
[[nodiscard]] std::int64_t padded_tokens(std::int64_t longest, std::int64_t limit, int ranks = 1);

/// One row: the last `limit` of `ids`.
class PromptBatch : public BatchSource {
 public:
  explicit PromptBatch(const std::vector<std::int32_t>& ids, std::int64_t limit) : ids_(ids), limit_(limit) {}
  [[nodiscard]] std::int64_t rows(int) const override { return 1; }
  [[nodiscard]] std::int64_t tokens(int) const override {
    return std::min(limit_, static_cast<std::int64_t>(ids_.size()));
  }
  void load(int micro, const BatchMemory& to) override;

 private:
  const std::vector<std::int32_t>& ids_;
  std::int64_t limit_;
};

}  // namespace tessera::exec
