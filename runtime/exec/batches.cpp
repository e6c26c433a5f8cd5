// SPDX-License-Identifier: Apache-2.0
#include "runtime/exec/batches.hpp"

#include <algorithm>

namespace tessera::exec {

void SampleBatches::set(const io::TokenStream& stream, const io::Sampler* sampler, std::int64_t first,
                        std::int64_t count) {
  const io::PackedStream* packed = stream.packed();
  TESSERA_ASSERT((packed != nullptr && packed->packing() == io::Packing::unpaired) ||
                     (packed != nullptr ? packed->sequences() : 1) == num_sequences_,
                 "a run planned for %d sequences of a sample", num_sequences_);
  stream_ = &stream;
  sampler_ = sampler;
  first_ = first;
  count_ = count;
  for (int micro = 0; micro < batch_.accumulation; ++micro)
    tokens_of_[static_cast<std::size_t>(micro)] = flat_tokens_ > 0 ? join_rows(micro) : longest_row(micro);
}

std::int64_t padded_tokens(std::int64_t longest, std::int64_t limit, int ranks) {
  const std::int64_t multiple = std::int64_t{16} * ranks;
  return std::min((longest + multiple - 1) / multiple * multiple, limit);
}

SampleBatches::Place SampleBatches::place_of(int micro, std::int64_t row) const {
  const std::int64_t first = first_ + batch_.range(micro, data_rank_, count_).first;
  return {sample(first + row / num_sequences_),
          num_sequences_ > 1 ? static_cast<int>(row % num_sequences_) : sequence_};
}

std::int64_t SampleBatches::longest_row(int micro) const {
  const io::PackedStream* packed = stream_->packed();
  if (packed == nullptr || !packed->has_rows()) return tokens_;
  std::int64_t longest = 1;
  for (std::int64_t row = 0; row < sequences(micro); ++row) {
    const Place at = place_of(micro, row);
    longest = std::max(longest, packed->tokens_of(at.sample, at.sequence));
  }
  return padded_tokens(longest, tokens_, context_.ranks());
}

/// Notes the lengths of the sequences; the tokens of the row that they are.
std::int64_t SampleBatches::join_rows(int micro) {
  const io::PackedStream* packed = stream_->packed();
  TESSERA_ASSERT(packed != nullptr, "samples end to end that are not of documents");
  std::int64_t* const lengths = lengths_.data() + micro * batch_.micro_batch * num_sequences_;
  std::int64_t sum = 0;
  for (std::int64_t row = 0; row < sequences(micro); ++row) {
    const Place at = place_of(micro, row);
    sum += lengths[row] = packed->tokens_of(at.sample, at.sequence);
  }
  TESSERA_ASSERT(sum <= flat_tokens_, "%ld tokens end to end, planned for %ld", sum, flat_tokens_);
  return padded_tokens(std::max<std::int64_t>(sum, 1), flat_tokens_, context_.ranks());
}

std::span<const std::int64_t> SampleBatches::row_lengths(int micro) const {
  if (flat_tokens_ == 0) return {};
  return std::span(lengths_).subspan(static_cast<std::size_t>(micro * batch_.micro_batch * num_sequences_),
                                     static_cast<std::size_t>(sequences(micro)));
}

std::int64_t SampleBatches::row_length(int micro, std::int64_t row, std::int64_t at) const {
  const std::span<const std::int64_t> lengths = row_lengths(micro);
  if (lengths.empty()) return row_tokens(micro);
  const bool last = row + 1 == static_cast<std::int64_t>(lengths.size());
  return last ? row_tokens(micro) - at : lengths[static_cast<std::size_t>(row)];
}

io::PackedCounts SampleBatches::work() {
  const io::PackedStream* packed = stream_->packed();
  if (packed == nullptr)
    return {count_ * tokens_, count_ * tokens_, count_ * tokens_ * tokens_};  // every target of a full sample is valid
  io::PackedCounts all;
  for (std::int64_t i = 0; i < count_; ++i) packed->add_counts(sample(first_ + i), all, sequence_);
  if (num_sequences_ > 1)
    nll_weight_ = static_cast<float>(static_cast<double>(count_) / static_cast<double>(all.first_targets));
  return all;
}

/// All sequences of each sample, one after the other, or one of them.
void SampleBatches::load_sequences(int micro, const BatchMemory& to) const {
  const io::PackedStream& packed = *stream_->packed();
  const std::span<const double> reference = packed.reference_sums();
  TESSERA_ASSERT(to.reference_sums() == nullptr || !reference.empty(),
                 "a run that needs a reference's log-probabilities");
  std::int64_t at = 0;
  for (std::int64_t row = 0; row < sequences(micro); ++row) {
    const auto [k, sequence] = place_of(micro, row);
    const std::int64_t length = row_length(micro, row, at);
    const BatchMemory m = to.from(at, row);
    packed.read_sequence(k, sequence,
                         {length, m.ids(), m.targets(), m.positions(), m.loss_weights(), kernels::ignore_index});
    at += length;
    if (m.sequence_ends() != nullptr) *m.sequence_ends() = static_cast<std::int32_t>(at);
    if (m.reference_sums() != nullptr)
      *m.reference_sums() = reference[static_cast<std::size_t>(k * packed.sequences() + sequence)];
    if (m.labels() != nullptr) *m.labels() = sequence == 1 ? 0.0F : packed.is_chosen(k) ? 1.0F : -1.0F;
    if (m.kl() != nullptr) *m.kl() = kl_;
    if (m.margins() != nullptr) *m.margins() = packed.margin_of(k);
    if (m.nll_weights() != nullptr) *m.nll_weights() = nll_weight_;
  }
}

/// The tokens [first, first + count) of a rank's part of a row, as ranges of the row: of the part's two halves, of
/// which each begins somewhere in the row. Calls copy(place in the row, place in [first, first + count), tokens).
static void for_each_range(const SampleBatches::RowPart& part, const auto& copy) {
  const std::int64_t half = part.tokens / 2;
  const std::array<std::int64_t, 3> ends = {0, half, part.tokens};
  for (std::size_t h = 0; h < 2; ++h) {
    const std::int64_t from = std::max(part.first, ends[h]),
                       count = std::min(part.first + part.count, ends[h + 1]) - from;
    if (count > 0) copy(part.begins[h] + from - ends[h], from - part.first, count);
  }
}

/// This rank's part of all rows end to end, or of the parts of them that the ranks of its tensor group have. Attention
/// has whole rows, and needs their positions; embedding and head have the group's tokens.
void SampleBatches::load_parts(int micro, const BatchMemory& to) {
  const auto range = batch_.range(micro, data_rank_, count_);
  const std::int64_t mine = rows(micro) * tokens(micro);
  std::int64_t at = 0, done = 0;
  for (std::int64_t row = 0; row < range.count; ++row) {
    const std::int64_t all = row_length(micro, row, at * context_.share.ranks), part = all / context_.share.ranks;
    // Where this rank's tokens begin, in the numbering of the row's part.
    const std::int64_t begin = context_.tensor_rank * mine - at;
    const std::int64_t first = std::clamp<std::int64_t>(begin, 0, part),
                       count = std::clamp<std::int64_t>(begin + mine, 0, part) - first;
    const std::array<std::int64_t, 2> begins = context_.share.ranks > 1 ? row_begins(micro) : std::array{0L, part / 2};
    BatchMemory m = to.from(done, row);
    if (to.row_positions() != nullptr)
      m.set(models::BatchField::row_positions,
            reinterpret_cast<std::byte*>(to.row_positions() + at * context_.share.ranks));
    for (const auto field :
         {models::BatchField::part_positions, models::BatchField::part_ids, models::BatchField::part_targets})
      if (to[field] != nullptr) m.set(field, to[field] + at * static_cast<std::int64_t>(sizeof(std::int32_t)));
    load_row_part(sample(first_ + range.first + row), m, {all, part, begins, first, count});
    at += part;
    done += count;
  }
}

void SampleBatches::load_row_part(std::int64_t sample, const BatchMemory& m, const RowPart& part) {
  const io::PackedStream* packed = stream_->packed();
  const RowPart whole{part.all, part.tokens, part.begins, 0, part.tokens};  // of the tensor group
  if (packed != nullptr) {
    float* const weights = m.loss_weights() != nullptr ? row_.weights.data() : nullptr;
    packed->read_sample(
        sample, {part.all, row_.ids.data(), row_.targets.data(), m.row_positions(), weights, kernels::ignore_index});
    for_each_range(part, [&](std::int64_t from, std::int64_t at, std::int64_t count) {
      std::copy_n(row_.ids.data() + from, count, m.ids() + at);
      std::copy_n(row_.targets.data() + from, count, m.targets() + at);
      std::copy_n(m.row_positions() + from, count, m.positions() + at);
      if (weights != nullptr) std::copy_n(weights + from, count, m.loss_weights() + at);
    });
    for_each_range(whole, [&](std::int64_t from, std::int64_t at, std::int64_t count) {
      if (m.part_positions() != nullptr) std::copy_n(m.row_positions() + from, count, m.part_positions() + at);
      if (m.part_ids() == nullptr) return;
      std::copy_n(row_.ids.data() + from, count, m.part_ids() + at);
      std::copy_n(row_.targets.data() + from, count, m.part_targets() + at);
    });
    return;
  }
  const auto number = [](std::int32_t* positions, std::int64_t from, std::int64_t count) {
    for (std::int64_t t = 0; t < count; ++t) positions[t] = static_cast<std::int32_t>(from + t);
  };
  for_each_range(part, [&](std::int64_t from, std::int64_t at, std::int64_t count) {
    const std::int64_t first = stream_->sample_begin(sample, part.all) + from;
    stream_->read(first, count, m.ids() + at);
    stream_->read(first + 1, count, m.targets() + at);
    if (m.loss_weights() != nullptr) stream_->read_weights(first + 1, count, m.loss_weights() + at);
    number(m.positions() + at, from, count);
  });
  for_each_range(whole, [&](std::int64_t from, std::int64_t at, std::int64_t count) {
    if (m.part_positions() != nullptr) number(m.part_positions() + at, from, count);
    if (m.part_ids() == nullptr) return;
    const std::int64_t first = stream_->sample_begin(sample, part.all) + from;
    stream_->read(first, count, m.part_ids() + at);
    stream_->read(first + 1, count, m.part_targets() + at);
  });
}

void SampleBatches::load_rows(int micro, const BatchMemory& to) const {
  const auto range = batch_.range(micro, data_rank_, count_);
  const io::PackedStream* packed = stream_->packed();
  std::int64_t at = 0;
  for (std::int64_t row = 0; row < range.count; ++row) {
    const std::int64_t k = sample(first_ + range.first + row), tokens = row_length(micro, row, at);
    const BatchMemory m = to.from(at, row);
    at += tokens;
    if (packed != nullptr) {
      packed->read_sample(k, {tokens, m.ids(), m.targets(), m.positions(), m.loss_weights(), kernels::ignore_index});
      continue;
    }
    const std::int64_t first = stream_->sample_begin(k, tokens);
    stream_->read(first, tokens, m.ids());
    stream_->read(first + 1, tokens, m.targets());
    if (m.loss_weights() != nullptr) stream_->read_weights(first + 1, tokens, m.loss_weights());
  }
}

void SampleBatches::load(int micro, const BatchMemory& to) {
  const io::PackedStream* packed = stream_->packed();
  const bool parts = context_.ranks() > 1;
  TESSERA_ASSERT((packed != nullptr) == ((parts ? to.row_positions() : to.positions()) != nullptr) &&
                     (!stream_->weighted() || to.loss_weights() != nullptr),
                 "packed or weighted samples in a run that is planned without, or the reverse");
  if (has_sequences()) load_sequences(micro, to);
  else if (parts) load_parts(micro, to);
  else load_rows(micro, to);
  if (to.document_starts() == nullptr || packed == nullptr) return;
  groups_[static_cast<std::size_t>(micro)] = kernels::list_documents(
      {rows(micro), row_tokens(micro), parts ? to.row_positions() : to.positions(), parts ? nullptr : to.targets()},
      to.document_starts(), to.document_lengths());
}

void PromptBatch::load(int micro, const BatchMemory& to) {
  std::copy(ids_.end() - tokens(micro), ids_.end(), to.ids());
}

}  // namespace tessera::exec
