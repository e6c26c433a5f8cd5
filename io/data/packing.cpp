// SPDX-License-Identifier: Apache-2.0
// Reads samples of documents.
#include "io/data/packing.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <functional>
#include <memory>
#include <queue>
#include <utility>

#include "io/data/packed_index.hpp"
#include "io/file/file.hpp"
#include "runtime/base/error.hpp"

namespace tessera::io {

namespace {

constexpr std::int64_t mask_block = 1024;

/// Removes the targets that have no loss; targets[i] is token first + i.
void mask_targets(const TokenStream& source, std::int64_t first, std::int64_t count, std::int32_t no_target,
                  std::int32_t* targets) {
  std::array<std::uint8_t, mask_block> loss{};
  for (std::int64_t at = 0; at < count; at += mask_block) {
    const std::int64_t n = std::min(mask_block, count - at);
    source.read_loss(first + at, n, loss.data());
    for (std::int64_t i = 0; i < n; ++i)
      if (loss[static_cast<std::size_t>(i)] == 0) targets[at + i] = no_target;
  }
}

/// What follows the first `at` tokens of a sample.
void pad(const PackedSample& to, std::int64_t at) {
  std::fill(to.ids + at, to.ids + to.tokens, 0);
  std::fill(to.targets + at, to.targets + to.tokens, to.no_target);
  std::fill(to.positions + at, to.positions + to.tokens, 0);
  if (to.weights != nullptr) std::fill(to.weights + at, to.weights + to.tokens, 1.0F);
}

}  // namespace

PackedStream::PackedStream(std::shared_ptr<const TokenStream> source, const Documents& documents, std::int64_t tokens,
                           Packing packing, Truncation truncation, std::int64_t group)
    : source_(std::move(source)),
      masked_(source_->masked()),
      rule_{tokens, packing, truncation, group},
      own_begins_{0} {
  const auto each = [&](const TakeDocument& take) {
    std::int64_t begin = documents.first;
    for (const std::int64_t end : documents.ends) take(std::exchange(begin, end), end);
  };
  summary_ = pack(*source_, each, rule_, [&](std::span<const TokenRange> sample) {
    own_ranges_.insert(own_ranges_.end(), sample.begin(), sample.end());
    own_begins_.push_back(static_cast<std::int64_t>(own_ranges_.size()));
  });
  ranges_ = own_ranges_, begins_ = own_begins_;
}

PackedStream::PackedStream(std::shared_ptr<const TokenStream> source, const std::string& index, const PackingRule& rule,
                           std::uint64_t selection)
    : source_(std::move(source)),
      masked_(source_->masked()),
      rule_(rule),
      index_path_(index),
      index_(std::make_unique<MappedFile>(index)),
      selection_(selection) {
  const PackedIndex found = check_packed_index(index_->bytes(), source_->size(), rule, index);
  summary_ = found.summary;
  ranges_ = found.ranges, begins_ = found.begins;
}

PackedStream::~PackedStream() = default;

std::span<const TokenRange> PackedStream::ranges_of(std::int64_t sample) const {
  TESSERA_ASSERT(sample >= 0 && sample < count().samples, "sample %ld of %ld", sample, count().samples);
  const std::int64_t first = begins_[static_cast<std::size_t>(sample)],
                     end = begins_[static_cast<std::size_t>(sample) + 1];
  const bool unpaired = rule_.packing == Packing::unpaired;
  const std::int64_t number = unpaired                   ? 2 * sequences()
                              : has_pairs(rule_.packing) ? documents_of_sample(rule_.packing)
                                                         : 1;
  bool is_valid = first >= 0 && first < end && end <= static_cast<std::int64_t>(ranges_.size()) &&
                  (number == 1 || end - first == number);
  std::int64_t tokens = 0;
  for (std::int64_t r = first; is_valid && r < end; ++r) {
    const TokenRange& range = ranges_[static_cast<std::size_t>(r)];
    const bool margin = rule_.packing == Packing::rated && r - first == 2;
    if (margin) {
      is_valid = (range.tokens == 0 || range.tokens == margin_digits) && range.targets_and_more == 0 &&
                 range.first >= 0 && range.first <= source_->size() - range.tokens;
      break;
    }
    const bool begins = has_pairs(rule_.packing) || (unpaired && r - first == 2);
    tokens = begins ? range.tokens : tokens + range.tokens;
    // Of a chosen and a rejected answer, one is empty.
    const bool may_be_empty = unpaired && r - first < 2 && (r == first || tokens > 0);
    is_valid = (range.tokens > 0 ? !(unpaired && r == first + 1 && tokens > range.tokens) : may_be_empty) &&
               tokens <= count().longest && range.first >= 0 && range.first < source_->size() - range.followed() &&
               range.targets_and_more >= 0 && range.targets() <= std::max<std::int64_t>(range.followed(), 0);
  }
  if (!is_valid) throw damaged_index(index_path_, strfmt("the ranges of sample %ld are not of its tokens", sample));
  return ranges_.subspan(static_cast<std::size_t>(first), static_cast<std::size_t>(end - first));
}

void PackedStream::add_counts(std::int64_t sample, PackedCounts& work, int sequence) const {
  const bool unpaired = rule_.packing == Packing::unpaired;
  const std::span<const TokenRange> ranges = unpaired ? sequence_of(sample, sequence) : ranges_of(sample);
  if (unpaired && sequence == 1) {  // its two ranges are one document
    const std::int64_t tokens = tokens_of(sample, sequence);
    work.targets += ranges[1].targets();
    work.tokens += tokens;
    work.squares += tokens * tokens;
    return;
  }
  work.first_targets += ranges.front().targets();
  for (const TokenRange& range : rows_of(ranges)) {
    work.targets += range.targets();
    work.tokens += range.tokens;
    work.squares += std::int64_t{range.tokens} * range.tokens;
  }
}

/// Without the margin of a rated pair.
std::span<const TokenRange> PackedStream::rows_of(std::span<const TokenRange> ranges) const {
  return rule_.packing == Packing::rated ? ranges.first(2) : ranges;
}

float PackedStream::margin_of(std::int64_t sample) const {
  if (rule_.packing != Packing::rated) return 0;
  const TokenRange margin = ranges_of(sample)[2];
  if (margin.tokens == 0) return 0;
  std::array<std::int32_t, margin_digits> digits{};
  source_->read(margin.first, margin_digits, digits.data());
  std::uint32_t bits = 0;
  for (const std::int32_t digit : digits) bits = bits << 4 | (static_cast<std::uint32_t>(digit) & 15U);
  return std::bit_cast<float>(bits);
}

std::span<const TokenRange> PackedStream::sequence_of(std::int64_t sample, int sequence) const {
  const std::span<const TokenRange> ranges = ranges_of(sample);
  if (has_pairs(rule_.packing)) return ranges.subspan(static_cast<std::size_t>(sequence), 1);
  if (rule_.packing != Packing::unpaired) return ranges;
  return sequence == 1 ? ranges.subspan(2) : ranges.subspan(ranges[0].tokens > 0 ? 0 : 1, 1);
}

std::int64_t PackedStream::tokens_of(std::int64_t sample, int sequence) const {
  std::int64_t tokens = 0;
  for (const TokenRange& range : sequence_of(sample, sequence)) tokens += range.tokens;
  return tokens;
}

std::int64_t PackedStream::tokens_of(std::int64_t sample) const {
  if (rule_.packing == Packing::unpaired) return tokens_of(sample, 0);
  std::int64_t tokens = 0;
  for (const TokenRange& range : rows_of(ranges_of(sample))) tokens += range.tokens;
  return tokens;
}

void PackedStream::set_reference_sums(std::vector<double> sums) {
  TESSERA_ASSERT(static_cast<std::int64_t>(sums.size()) == count().samples * sequences(),
                 "%zu log-probabilities of %ld samples", sums.size(), count().samples);
  reference_sums_ = std::move(sums);
}

std::int64_t PackedStream::longest_together(std::int64_t samples, Sequences which) const {
  std::priority_queue<std::int64_t, std::vector<std::int64_t>, std::greater<>> longest;
  std::int64_t sum = 0;
  for (std::int64_t k = 0; k < count().samples; ++k) {
    std::int64_t tokens = 0;
    for (int sequence = which.first; sequence < which.end; ++sequence) tokens += tokens_of(k, sequence);
    longest.push(tokens);
    sum += tokens;
    if (static_cast<std::int64_t>(longest.size()) <= samples) continue;
    sum -= longest.top();
    longest.pop();
  }
  return sum;
}

void PackedStream::read_sample(std::int64_t sample, const PackedSample& to) const {
  TESSERA_ASSERT(to.tokens >= tokens_of(sample), "sample %ld has %ld tokens, and there is memory for %ld", sample,
                 tokens_of(sample), to.tokens);
  read_ranges(ranges_of(sample), to);
}

void PackedStream::read_sequence(std::int64_t sample, int sequence, const PackedSample& to) const {
  TESSERA_ASSERT(to.tokens >= tokens_of(sample, sequence), "a sequence of %ld tokens, and there is memory for %ld",
                 tokens_of(sample, sequence), to.tokens);
  const std::span<const TokenRange> ranges = sequence_of(sample, sequence);
  if (rule_.packing == Packing::unpaired && sequence == 1) read_joined(ranges[0], ranges[1], to);
  else read_ranges(ranges, to);
}

/// One document of two ranges; targets are of the second.
void PackedStream::read_joined(const TokenRange& prompt, const TokenRange& answer, const PackedSample& to) const {
  const std::int64_t tokens = std::int64_t{prompt.tokens} + answer.tokens, last = prompt.tokens - 1;
  pad(to, 0);
  source_->read(prompt.first, prompt.tokens, to.ids);
  source_->read(answer.first, answer.tokens, to.ids + prompt.tokens);
  std::copy_n(to.ids + prompt.tokens, answer.tokens, to.targets + last);
  if (masked_) mask_targets(*source_, answer.first, answer.tokens, to.no_target, to.targets + last);
  for (std::int64_t t = 0; t < tokens; ++t) to.positions[t] = static_cast<std::int32_t>(t);
}

void PackedStream::read_ranges(std::span<const TokenRange> ranges, const PackedSample& to) const {
  std::int64_t at = 0;
  for (const TokenRange& range : ranges) {
    source_->read(range.first, range.tokens, to.ids + at);
    source_->read(range.first + 1, range.followed(), to.targets + at);
    if (masked_) mask_targets(*source_, range.first + 1, range.followed(), to.no_target, to.targets + at);
    if (!range.continues()) to.targets[at + range.tokens - 1] = to.no_target;
    if (to.weights != nullptr) {
      source_->read_weights(range.first + 1, range.followed(), to.weights + at);
      std::fill(to.weights + at + range.followed(), to.weights + at + range.tokens, 1.0F);
    }
    for (std::int32_t t = 0; t < range.tokens; ++t) to.positions[at + t] = t;
    at += range.tokens;
  }
  pad(to, at);
}

}  // namespace tessera::io
