// SPDX-License-Identifier: Apache-2.0
#pragma once
// Packing: samples of T tokens hold complete documents, or parts of documents longer than T. Which document goes into
// which sample depends on the lengths, and on which tokens have loss, alone.

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "io/data/dataset.hpp"

namespace tessera::io {

class MappedFile;  // io/file/file.hpp

/// sequential: in the order of the stream; a new sample begins if the next document does not fit. binpack: best-fit
/// decreasing over 1000 documents at a time; the emptiest sample of each thousand is filled further by the next.
/// padded: one document a sample. pairs: two documents a sample, the chosen and the rejected answer to a prompt, which
/// are never apart: what one of them loses a sample for, both do. unpaired: two documents are again a chosen and a
/// rejected answer, of which one may be empty; each that is not is a sample of its own. Of 1000 pairs of documents the
/// rejected answers of those that have both come last, so that the answers to a prompt are apart (as in TRL). Such a
/// sample has a second sequence, its prompt with the answer of the sample before it in its group: samples g·k to
/// g·(k + 1) - 1, the first of which takes the answer of the last. With g = 0 there are no second sequences.
/// rated: pairs, of three documents each; the third is the pair's margin (margin_tokens), or empty: 0.
enum class Packing : unsigned char { binpack, sequential, padded, pairs, unpaired, rated };
/// From its name; asserts otherwise.
[[nodiscard]] Packing packing_of(std::string_view word);
[[nodiscard]] constexpr bool has_pairs(Packing packing) {
  return packing == Packing::pairs || packing == Packing::rated;
}
/// Documents that belong together.
[[nodiscard]] constexpr int documents_of_sample(Packing packing) {
  return packing == Packing::rated ? 3 : packing >= Packing::pairs ? 2 : 1;
}

/// What becomes of a document longer than T. split: several parts. remove ("delete"): it is left out. left, right: its
/// first, its last tokens are left out.
enum class Truncation : unsigned char { split, remove, left, right };
/// From "split", "delete", "left" or "right"; asserts otherwise.
[[nodiscard]] Truncation truncation_of(std::string_view word);

/// A margin as the tokens of a document: none for 0, else the eight hexadecimal digits of the float, highest first.
inline constexpr int margin_digits = 8;
[[nodiscard]] std::vector<std::int32_t> margin_tokens(float margin);

/// Documents [first, ends[0]), [ends[0], ends[1]), … of a stream. Ends do not descend; a document may be empty.
struct Documents {
  std::int64_t first = 0;
  std::span<const std::int64_t> ends;
};
/// Takes the document [begin, end) of a stream.
using TakeDocument = std::function<void(std::int64_t begin, std::int64_t end)>;
/// Passes documents of a stream, in the order in which they are packed.
using DocumentSource = std::function<void(const TakeDocument&)>;

/// Adjacent tokens of one document.
struct TokenRange {
  std::int64_t first = 0;
  std::int32_t tokens = 0;
  std::int32_t targets_and_more = 0;  // twice the targets, plus 1 if the document has more tokens
  [[nodiscard]] bool continues() const { return (targets_and_more & 1) != 0; }
  [[nodiscard]] std::int64_t targets() const { return targets_and_more / 2; }
  /// Tokens that have a successor in the document.
  [[nodiscard]] std::int64_t followed() const { return tokens - (continues() ? 0 : 1); }
};

/// How documents become samples of T tokens.
struct PackingRule {
  std::int64_t tokens = 0;  // T
  Packing packing = Packing::binpack;
  Truncation truncation = Truncation::split;
  std::int64_t group = 0;  // of unpaired: g, or 0
};

/// Of Packing::pairs, a document is here a pair, and has what one of the two has. Of unpaired, second sequences count
/// in `longest` alone.
struct PackingCount {
  std::int64_t documents = 0;  // in samples
  std::int64_t cut = 0;        // of them, longer than T and therefore split or shortened
  std::int64_t samples = 0;
  std::int64_t tokens = 0;   // in samples, without padding
  std::int64_t longest = 0;  // tokens of one sample, without padding; of pairs, of one of the two
  std::int64_t targets = 0;
  std::int64_t squares = 0;      // Σ tokens² over documents or their parts: the cost of attention
  std::int64_t dropped = 0;      // documents of one token, which have no target
  std::int64_t too_long = 0;     // documents left out by Truncation::remove
  std::int64_t no_loss = 0;      // documents left out since none of their tokens, or of those that remain, has loss
  std::int64_t cut_no_loss = 0;  // of them, longer than T: truncation left no token with loss
};

/// A packing: what it has, and a hash of its samples.
struct PackingSummary {
  PackingCount count;
  std::uint64_t hash = 0;
};

/// Takes the ranges of a sample; samples come in order.
using TakeSample = std::function<void(std::span<const TokenRange> sample)>;
/// Packs the documents of `source`. Takes memory for 1000 documents, however many there are.
[[nodiscard]] PackingSummary pack(const TokenStream& source, const DocumentSource& documents, const PackingRule& rule,
                                  const TakeSample& take);

/// The same counts of some samples.
struct PackedCounts {
  std::int64_t targets = 0, tokens = 0, squares = 0;  // as in PackingCount
  std::int64_t first_targets = 0;                     // of the first documents alone: of pairs, the chosen ones
};

/// Memory for a sample: `tokens` elements each.
struct PackedSample {
  std::int64_t tokens = 0;  // as many as the sample has, or more: the rest is padding
  std::int32_t* ids = nullptr;
  std::int32_t* targets = nullptr;
  std::int32_t* positions = nullptr;
  float* weights = nullptr;    // of the targets, or null. Where there is no target: 1
  std::int32_t no_target = 0;  // written to `targets` where there is none
};

/// A stream with packed samples. A document's last token has no target, so a document contributes to the loss as it
/// would alone. The last target of a part is the first token of the document's next part, so every token of a document
/// but its first is a target once, if it has loss (TokenStream::read_loss). Positions count from 0 in every part. The
/// rest of a sample is padding: id 0, position 0, no target.
class PackedStream final : public TokenStream {
 public:
  /// Packs documents; the index of samples is in this process's memory. `tokens`: T.
  PackedStream(std::shared_ptr<const TokenStream> source, const Documents& documents, std::int64_t tokens,
               Packing packing, Truncation truncation = Truncation::split, std::int64_t group = 0);
  /// The samples of an index file (packed_index.hpp), which is mapped: ranks of a node share its pages. `selection`:
  /// of the documents that were packed. Throws Error (data): the file is damaged, or of another source or rule. Ranges
  /// are checked where they are used: every function below that takes a sample or samples throws Error (data) as well.
  PackedStream(std::shared_ptr<const TokenStream> source, const std::string& index, const PackingRule& rule,
               std::uint64_t selection = 0);
  PackedStream(const PackedStream&) = delete;
  PackedStream& operator=(const PackedStream&) = delete;
  ~PackedStream() override;

  [[nodiscard]] std::int64_t size() const override { return source_->size(); }
  void read(std::int64_t first, std::int64_t count, std::int32_t* out) const override {
    source_->read(first, count, out);
  }
  [[nodiscard]] bool weighted() const override { return source_->weighted(); }
  void read_weights(std::int64_t first, std::int64_t count, float* out) const override {
    source_->read_weights(first, count, out);
  }
  [[nodiscard]] bool masked() const override { return masked_; }
  void read_loss(std::int64_t first, std::int64_t count, std::uint8_t* out) const override {
    source_->read_loss(first, count, out);
  }
  [[nodiscard]] std::uint64_t selection() const override { return selection_; }
  [[nodiscard]] const PackedStream* packed() const override { return this; }

  [[nodiscard]] const PackingCount& count() const { return summary_.count; }
  [[nodiscard]] std::int64_t tokens() const { return rule_.tokens; }  // T
  [[nodiscard]] Packing packing() const { return rule_.packing; }
  [[nodiscard]] Truncation truncation() const { return rule_.truncation; }
  /// Sequences of a sample that are rows of their own: 2 of pairs, and of unpaired in groups, else 1.
  [[nodiscard]] int sequences() const {
    return has_pairs(rule_.packing) || (rule_.packing == Packing::unpaired && rule_.group > 0) ? 2 : 1;
  }
  /// Whether a sample's sequences have a row each: padded, pairs and unpaired.
  [[nodiscard]] bool has_rows() const { return rule_.packing >= Packing::padded; }
  /// Of unpaired: whether the answer is a chosen one.
  [[nodiscard]] bool is_chosen(std::int64_t sample) const { return ranges_of(sample).front().tokens > 0; }
  /// Of pairs: how much more the chosen answer is worth; 0 unless they are rated. Thread-safe.
  [[nodiscard]] float margin_of(std::int64_t sample) const;
  /// Adds the counts of `sample`; of unpaired, of one of its sequences.
  void add_counts(std::int64_t sample, PackedCounts& work, int sequence = 0) const;
  /// Tokens of a sample without padding; of unpaired, of its first sequence.
  [[nodiscard]] std::int64_t tokens_of(std::int64_t sample) const;
  /// Of one of its sequences, [0, sequences()).
  [[nodiscard]] std::int64_t tokens_of(std::int64_t sample, int sequence) const;
  /// Which of the sequences of a sample.
  struct Sequences {
    int first = 0, end = 1;
  };
  /// Tokens, without padding, that `which` sequences of so many samples have together, at most.
  [[nodiscard]] std::int64_t longest_together(std::int64_t samples, Sequences which) const;
  /// Thread-safe, allocates nothing.
  void read_sample(std::int64_t sample, const PackedSample& to) const;
  /// The same of one of its sequences, [0, sequences()).
  void read_sequence(std::int64_t sample, int sequence, const PackedSample& to) const;
  /// Log-probabilities of a reference model, one for each sequence of each sample; none: they are not known.
  void set_reference_sums(std::vector<double> sums);
  [[nodiscard]] std::span<const double> reference_sums() const { return reference_sums_; }
  /// A hash of the packing, which ranks compare.
  [[nodiscard]] std::uint64_t hash() const { return summary_.hash; }

 private:
  [[nodiscard]] std::span<const TokenRange> ranges_of(std::int64_t sample) const;
  [[nodiscard]] std::span<const TokenRange> rows_of(std::span<const TokenRange> ranges) const;
  [[nodiscard]] std::span<const TokenRange> sequence_of(std::int64_t sample, int sequence) const;
  void read_ranges(std::span<const TokenRange> ranges, const PackedSample& to) const;
  void read_joined(const TokenRange& prompt, const TokenRange& answer, const PackedSample& to) const;

  std::vector<double> reference_sums_;
  std::shared_ptr<const TokenStream> source_;
  bool masked_;
  PackingRule rule_;
  PackingSummary summary_;
  std::vector<TokenRange> own_ranges_;
  std::vector<std::int64_t> own_begins_;
  std::string index_path_;
  std::unique_ptr<const MappedFile> index_;
  std::uint64_t selection_ = 0;
  std::span<const TokenRange> ranges_;    // by sample
  std::span<const std::int64_t> begins_;  // first range of each sample, and the end
};

}  // namespace tessera::io
