// SPDX-License-Identifier: Apache-2.0
// Splits documents into ranges, assigns these to samples, and reads samples.
#include "io/data/packing.hpp"

#include <algorithm>
#include <array>
#include <functional>
#include <memory>
#include <optional>
#include <queue>
#include <set>
#include <tuple>
#include <utility>

#include "io/data/packed_index.hpp"
#include "io/file/file.hpp"
#include "runtime/base/error.hpp"
#include "runtime/base/hash.hpp"

namespace tessera::io {

namespace {
constexpr std::int64_t window = 1000;  // documents sorted at a time
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
}  // namespace

Packing packing_of(std::string_view word) {
  TESSERA_ASSERT(word == "binpack" || word == "sequential" || word == "padded" || word == "pairs", "packing %s",
                 std::string(word).c_str());
  if (word == "pairs") return Packing::pairs;
  return word == "binpack" ? Packing::binpack : word == "sequential" ? Packing::sequential : Packing::padded;
}

Truncation truncation_of(std::string_view word) {
  if (word == "delete") return Truncation::remove;
  if (word == "left") return Truncation::left;
  if (word == "right") return Truncation::right;
  TESSERA_ASSERT(word == "split", "truncation %s", std::string(word).c_str());
  return Truncation::split;
}

namespace {

/// Splits documents into ranges, and assigns these to samples of one stream.
class Packer {
 public:
  Packer(const TokenStream& source, const PackingRule& rule, const TakeSample& take)
      : source_(source), masked_(source.masked()), rule_(rule), take_(take) {
    TESSERA_ASSERT(rule.tokens >= 1 && rule.tokens <= INT32_MAX / 2, "samples of %ld", rule.tokens);
  }

  void add(std::int64_t begin, std::int64_t end) {
    TESSERA_ASSERT(begin >= 0 && end >= begin && end <= source_.size(), "a document [%ld, %ld)", begin, end);
    if (rule_.packing == Packing::pairs) return add_of_pair(begin, end);
    split(begin, end);
    if (++in_window_ == window) pack();
  }
  PackingSummary finish() {
    if (chosen_)
      throw Error(ExitCode::data, "the data set has an odd number of documents, and pairs need two each", {},
                  "Give rows of pairs: files of tokens hold none");
    pack();
    close();
    return summary_;
  }

 private:
  void pack() {
    if (rule_.packing == Packing::binpack) binpack();
    else if (rule_.packing == Packing::padded) padded();
    else sequential();
    ranges_.clear();
    in_window_ = 0;
  }

  /// Chosen and rejected follow one another.
  void add_of_pair(std::int64_t begin, std::int64_t end) {
    if (!chosen_) {
      chosen_ = {begin, end};
      return;
    }
    const std::pair<std::int64_t, std::int64_t> documents[] = {*chosen_, {begin, end}};
    chosen_.reset();
    PackingCount& count = summary_.count;
    bool longer = false, too_short = false, no_loss = false;
    std::vector<TokenRange> pair;
    for (auto [from, to] : documents) {
      too_short = too_short || to - from < 2;
      if (to - from > rule_.tokens) {
        longer = true;
        if (rule_.truncation == Truncation::left) from = to - rule_.tokens;
        else to = from + rule_.tokens;
      }
      const std::int64_t targets = to - from < 2 ? 0 : count_targets(from + 1, to - from - 1);
      no_loss = no_loss || targets == 0;
      pair.push_back({from, static_cast<std::int32_t>(to - from), static_cast<std::int32_t>(2 * targets)});
    }
    if (too_short) ++count.dropped;
    else if (longer && rule_.truncation == Truncation::remove) ++count.too_long;
    else if (no_loss) ++count.no_loss, count.cut_no_loss += longer ? 1 : 0;
    else ++count.documents, count.cut += longer ? 1 : 0, close(pair);
  }

  /// Next-fit in the order of the stream.
  void sequential() {
    for (const TokenRange& range : ranges_) {
      if (used_ + range.tokens > rule_.tokens) close();
      open_.push_back(range);
      used_ += range.tokens;
    }
  }

  /// Best-fit decreasing: the open sample first, as one range.
  void binpack() {
    std::stable_sort(ranges_.begin(), ranges_.end(),
                     [](const TokenRange& a, const TokenRange& b) { return a.tokens > b.tokens; });
    std::vector<std::vector<TokenRange>> samples;
    std::set<std::pair<std::int64_t, std::size_t>> free;  // tokens left, sample
    if (!open_.empty()) {
      samples.push_back(std::move(open_));
      free.emplace(rule_.tokens - used_, 0);
      open_.clear();
    }
    for (const TokenRange& range : ranges_) {
      const auto found = free.lower_bound({range.tokens, 0});
      std::size_t sample = samples.size();
      std::int64_t free_tokens = rule_.tokens;
      if (found == free.end()) {
        samples.emplace_back();
      } else {
        std::tie(free_tokens, sample) = *found;
        free.erase(found);
      }
      samples[sample].push_back(range);
      free.emplace(free_tokens - range.tokens, sample);
    }
    if (samples.empty()) return;
    const auto [free_tokens, emptiest] = *free.rbegin();
    open_ = std::move(samples[emptiest]);
    used_ = rule_.tokens - free_tokens;
    samples.erase(samples.begin() + static_cast<std::ptrdiff_t>(emptiest));
    close_in_order(samples);
  }

  /// One document, or part of one, a sample.
  void padded() {
    for (const TokenRange& range : ranges_) {
      open_.assign(1, range);
      close();
    }
  }

  void close() {
    if (!open_.empty()) close(open_);
    open_.clear();
    used_ = 0;
  }

  /// Closes samples, and orders the ranges in each, by their position in the stream, so that reads are sequential.
  void close_in_order(std::vector<std::vector<TokenRange>>& samples) {
    const auto earlier = [](const TokenRange& a, const TokenRange& b) { return a.first < b.first; };
    for (auto& sample : samples) std::sort(sample.begin(), sample.end(), earlier);
    std::sort(samples.begin(), samples.end(),
              [&](const auto& a, const auto& b) { return earlier(a.front(), b.front()); });
    for (const auto& sample : samples) close(sample);
  }

  [[nodiscard]] std::int64_t count_targets(std::int64_t first, std::int64_t count) const {
    if (!masked_) return count;
    std::array<std::uint8_t, mask_block> loss{};
    std::int64_t targets = 0;
    for (std::int64_t at = 0; at < count; at += mask_block) {
      const std::int64_t n = std::min(mask_block, count - at);
      source_.read_loss(first + at, n, loss.data());
      targets += n - std::count(loss.begin(), loss.begin() + n, 0);
    }
    return targets;
  }

  void split(std::int64_t begin, std::int64_t end) {
    PackingCount& count = summary_.count;
    const std::int64_t length = end - begin;
    count.dropped += length == 1;
    if (length < 2) return;
    const bool longer = length > rule_.tokens;
    if (longer && rule_.truncation == Truncation::remove) {
      ++count.too_long;
      return;
    }
    if (longer && rule_.truncation == Truncation::left) begin = end - rule_.tokens;
    if (longer && rule_.truncation == Truncation::right) end = begin + rule_.tokens;
    bool any = false;
    for (std::int64_t at = begin; at < end; at += rule_.tokens) {
      const std::int64_t n = std::min(rule_.tokens, end - at);
      const bool more = at + n < end;
      const std::int64_t targets = count_targets(at + 1, more ? n : n - 1);
      if (targets == 0) continue;  // one last token, which the range before it has as a target; or no loss
      ranges_.push_back({at, static_cast<std::int32_t>(n), static_cast<std::int32_t>(2 * targets + (more ? 1 : 0))});
      any = true;
    }
    count.documents += any;
    count.cut += any && longer;
    count.no_loss += !any;
    count.cut_no_loss += !any && longer;
  }

  void close(const std::vector<TokenRange>& sample) {
    PackingCount& count = summary_.count;
    std::int64_t tokens = 0;
    for (const TokenRange& range : sample) {
      tokens += range.tokens;
      if (rule_.packing == Packing::pairs) count.longest = std::max<std::int64_t>(count.longest, range.tokens);
      count.targets += range.targets();
      count.squares += std::int64_t{range.tokens} * range.tokens;
      summary_.hash = hash64(static_cast<std::uint64_t>(range.tokens * std::int64_t{2} + (range.continues() ? 1 : 0)),
                             hash64(static_cast<std::uint64_t>(range.first), summary_.hash));
    }
    count.tokens += tokens;
    if (rule_.packing != Packing::pairs) count.longest = std::max(count.longest, tokens);
    ++count.samples;
    summary_.hash = hash64(sample.size(), summary_.hash);
    take_(sample);
  }

  const TokenStream& source_;
  const bool masked_;
  const PackingRule rule_;
  const TakeSample& take_;
  PackingSummary summary_{{}, hash64("packed samples")};
  std::optional<std::pair<std::int64_t, std::int64_t>> chosen_;  // of a pair whose rejected document is next
  std::vector<TokenRange> ranges_;                               // of the window
  std::int64_t in_window_ = 0;                                   // documents
  std::vector<TokenRange> open_;                                 // of the open sample
  std::int64_t used_ = 0;                                        // of its tokens
};

}  // namespace

PackingSummary pack(const TokenStream& source, const DocumentSource& documents, const PackingRule& rule,
                    const TakeSample& take) {
  Packer packer(source, rule, take);
  documents([&](std::int64_t begin, std::int64_t end) { packer.add(begin, end); });
  return packer.finish();
}

PackedStream::PackedStream(std::shared_ptr<const TokenStream> source, const Documents& documents, std::int64_t tokens,
                           Packing packing, Truncation truncation)
    : source_(std::move(source)), masked_(source_->masked()), rule_{tokens, packing, truncation}, own_begins_{0} {
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
  const bool pairs = rule_.packing == Packing::pairs;
  bool is_valid = first >= 0 && first < end && end <= static_cast<std::int64_t>(ranges_.size()) &&
                  (!pairs || end - first == sequences());
  std::int64_t tokens = 0;
  for (std::int64_t r = first; is_valid && r < end; ++r) {
    const TokenRange& range = ranges_[static_cast<std::size_t>(r)];
    tokens = pairs ? range.tokens : tokens + range.tokens;
    is_valid = range.tokens > 0 && tokens <= count().longest && range.first >= 0 &&
               range.first < source_->size() - range.followed() && range.targets_and_more >= 0 &&
               range.targets() <= range.followed();
  }
  if (!is_valid) throw damaged_index(index_path_, strfmt("the ranges of sample %ld are not of its tokens", sample));
  return ranges_.subspan(static_cast<std::size_t>(first), static_cast<std::size_t>(end - first));
}

void PackedStream::add_counts(std::int64_t sample, PackedCounts& work) const {
  const std::span<const TokenRange> ranges = ranges_of(sample);
  work.first_targets += ranges.front().targets();
  for (const TokenRange& range : ranges) {
    work.targets += range.targets();
    work.tokens += range.tokens;
    work.squares += std::int64_t{range.tokens} * range.tokens;
  }
}

std::int64_t PackedStream::tokens_of(std::int64_t sample) const {
  std::int64_t tokens = 0;
  for (const TokenRange& range : ranges_of(sample)) tokens += range.tokens;
  return tokens;
}

std::int64_t PackedStream::longest_row(std::int64_t sample) const {
  if (sequences() == 1) return tokens_of(sample);
  std::int64_t longest = 0;
  for (const TokenRange& range : ranges_of(sample)) longest = std::max<std::int64_t>(longest, range.tokens);
  return longest;
}

void PackedStream::set_reference_sums(std::vector<double> sums) {
  TESSERA_ASSERT(static_cast<std::int64_t>(sums.size()) == count().samples * sequences(),
                 "%zu log-probabilities of %ld samples", sums.size(), count().samples);
  reference_sums_ = std::move(sums);
}

std::int64_t PackedStream::longest_together(std::int64_t samples) const {
  std::priority_queue<std::int64_t, std::vector<std::int64_t>, std::greater<>> longest;
  std::int64_t sum = 0;
  for (std::int64_t k = 0; k < count().samples; ++k) {
    longest.push(tokens_of(k));
    sum += tokens_of(k);
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
  if (sequences() == 1) return read_sample(sample, to);
  const std::span<const TokenRange> range = ranges_of(sample).subspan(static_cast<std::size_t>(sequence), 1);
  TESSERA_ASSERT(to.tokens >= range.front().tokens, "a sequence of %d tokens, and there is memory for %ld",
                 range.front().tokens, to.tokens);
  read_ranges(range, to);
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
  std::fill(to.ids + at, to.ids + to.tokens, 0);
  std::fill(to.targets + at, to.targets + to.tokens, to.no_target);
  std::fill(to.positions + at, to.positions + to.tokens, 0);
  if (to.weights != nullptr) std::fill(to.weights + at, to.weights + to.tokens, 1.0F);
}

}  // namespace tessera::io
