// Splits documents into ranges, assigns these to samples, and reads samples.
#include "io/data/packing.hpp"

#include <algorithm>
#include <array>
#include <memory>
#include <set>
#include <tuple>

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
  TESSERA_ASSERT(word == "binpack" || word == "sequential" || word == "padded", "packing %s",
                 std::string(word).c_str());
  return word == "binpack" ? Packing::binpack : word == "sequential" ? Packing::sequential : Packing::padded;
}

Truncation truncation_of(std::string_view word) {
  if (word == "delete") return Truncation::remove;
  if (word == "left") return Truncation::left;
  if (word == "right") return Truncation::right;
  TESSERA_ASSERT(word == "split", "truncation %s", std::string(word).c_str());
  return Truncation::split;
}

/// Assigns ranges to samples of one stream.
class PackedStream::Packer {
 public:
  explicit Packer(PackedStream& stream) : stream_(stream) {}

  /// Next-fit in the order of the stream.
  void sequential(std::vector<TokenRange>& ranges) {
    for (const TokenRange& range : ranges) {
      if (used_ + range.tokens > stream_.tokens_) finish();
      open_.push_back(range);
      used_ += range.tokens;
    }
  }

  /// Best-fit decreasing: the open sample first, as one range.
  void binpack(std::vector<TokenRange>& ranges) {
    std::stable_sort(ranges.begin(), ranges.end(),
                     [](const TokenRange& a, const TokenRange& b) { return a.tokens > b.tokens; });
    std::vector<std::vector<TokenRange>> samples;
    std::set<std::pair<std::int64_t, std::size_t>> free;  // tokens left, sample
    if (!open_.empty()) {
      samples.push_back(std::move(open_));
      free.emplace(stream_.tokens_ - used_, 0);
      open_.clear();
    }
    for (const TokenRange& range : ranges) {
      const auto found = free.lower_bound({range.tokens, 0});
      std::size_t sample = samples.size();
      std::int64_t free_tokens = stream_.tokens_;
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
    used_ = stream_.tokens_ - free_tokens;
    samples.erase(samples.begin() + static_cast<std::ptrdiff_t>(emptiest));
    close_in_order(samples);
  }

  /// One document, or part of one, a sample.
  void padded(std::vector<TokenRange>& ranges) {
    for (const TokenRange& range : ranges) {
      open_.assign(1, range);
      finish();
    }
  }

  void finish() {
    if (!open_.empty()) stream_.close(open_);
    open_.clear();
    used_ = 0;
  }

 private:
  /// Closes samples, and orders the ranges in each, by their position in the stream, so that reads are sequential.
  void close_in_order(std::vector<std::vector<TokenRange>>& samples) {
    const auto earlier = [](const TokenRange& a, const TokenRange& b) { return a.first < b.first; };
    for (auto& sample : samples) std::sort(sample.begin(), sample.end(), earlier);
    std::sort(samples.begin(), samples.end(),
              [&](const auto& a, const auto& b) { return earlier(a.front(), b.front()); });
    for (auto& sample : samples) stream_.close(sample);
  }

  PackedStream& stream_;
  std::vector<TokenRange> open_;  // of the open sample
  std::int64_t used_ = 0;         // of its tokens
};

PackedStream::PackedStream(std::shared_ptr<const TokenStream> source, const Documents& documents, std::int64_t tokens,
                           Packing packing, Truncation truncation)
    : source_(std::move(source)),
      masked_(source_->masked()),
      tokens_(tokens),
      packing_(packing),
      truncation_(truncation),
      own_begins_{0} {
  TESSERA_ASSERT(tokens >= 1 && tokens <= INT32_MAX / 2, "samples of %ld", tokens);
  Packer packer(*this);
  std::vector<TokenRange> ranges;
  std::int64_t begin = documents.first, in_window = 0;
  const auto pack = [&] {
    if (packing == Packing::binpack) packer.binpack(ranges);
    else if (packing == Packing::padded) packer.padded(ranges);
    else packer.sequential(ranges);
    ranges.clear();
    in_window = 0;
  };
  for (const std::int64_t end : documents.ends) {
    TESSERA_ASSERT(end >= begin && end <= source_->size(), "a document ends at %ld", end);
    split(begin, end, ranges);
    begin = end;
    if (++in_window == window) pack();
  }
  pack();
  packer.finish();
  own_ranges_.shrink_to_fit(), own_begins_.shrink_to_fit();
  ranges_ = own_ranges_, begins_ = own_begins_;
}

std::int64_t PackedStream::count_targets(std::int64_t first, std::int64_t count) const {
  if (!masked_) return count;
  std::array<std::uint8_t, mask_block> loss{};
  std::int64_t targets = 0;
  for (std::int64_t at = 0; at < count; at += mask_block) {
    const std::int64_t n = std::min(mask_block, count - at);
    source_->read_loss(first + at, n, loss.data());
    targets += n - std::count(loss.begin(), loss.begin() + n, 0);
  }
  return targets;
}

void PackedStream::split(std::int64_t begin, std::int64_t end, std::vector<TokenRange>& ranges) {
  const std::int64_t length = end - begin;
  count_.dropped += length == 1;
  if (length < 2) return;
  const bool longer = length > tokens_;
  if (longer && truncation_ == Truncation::remove) {
    ++count_.too_long;
    return;
  }
  if (longer && truncation_ == Truncation::left) begin = end - tokens_;
  if (longer && truncation_ == Truncation::right) end = begin + tokens_;
  bool any = false;
  for (std::int64_t at = begin; at < end; at += tokens_) {
    const std::int64_t n = std::min(tokens_, end - at);
    const bool more = at + n < end;
    const std::int64_t targets = count_targets(at + 1, more ? n : n - 1);
    if (targets == 0) continue;  // one last token, which the range before it has as a target; or no loss
    ranges.push_back({at, static_cast<std::int32_t>(n), static_cast<std::int32_t>(2 * targets + (more ? 1 : 0))});
    any = true;
  }
  count_.documents += any;
  count_.cut += any && longer;
  count_.no_loss += !any;
}

void PackedStream::close(std::vector<TokenRange>& sample) {
  std::int64_t tokens = 0;
  for (const TokenRange& range : sample) {
    tokens += range.tokens;
    count_.targets += range.targets();
    count_.squares += std::int64_t{range.tokens} * range.tokens;
    own_ranges_.push_back(range);
  }
  count_.tokens += tokens;
  count_.longest = std::max(count_.longest, tokens);
  ++count_.samples;
  own_begins_.push_back(static_cast<std::int64_t>(own_ranges_.size()));
}

std::span<const PackedStream::TokenRange> PackedStream::ranges_of(std::int64_t sample) const {
  TESSERA_ASSERT(sample >= 0 && sample < count_.samples, "sample %ld of %ld", sample, count_.samples);
  const auto first = static_cast<std::size_t>(begins_[static_cast<std::size_t>(sample)]),
             end = static_cast<std::size_t>(begins_[static_cast<std::size_t>(sample) + 1]);
  return ranges_.subspan(first, end - first);
}

void PackedStream::add_counts(std::int64_t sample, PackedCounts& work) const {
  for (const TokenRange& range : ranges_of(sample)) {
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

void PackedStream::move_index(std::span<std::byte> storage) {
  TESSERA_ASSERT(storage.size() == index_bytes(), "an index of %zu bytes in %zu", index_bytes(), storage.size());
  static_assert(std::is_trivially_copyable_v<TokenRange> && alignof(TokenRange) == 8 && sizeof(TokenRange) == 16);
  auto* const ranges = reinterpret_cast<TokenRange*>(storage.data());
  auto* const begins = reinterpret_cast<std::int64_t*>(storage.data() + ranges_.size_bytes());
  std::uninitialized_copy(ranges_.begin(), ranges_.end(), ranges);
  std::uninitialized_copy(begins_.begin(), begins_.end(), begins);
  ranges_ = {ranges, ranges_.size()}, begins_ = {begins, begins_.size()};
  own_ranges_ = {}, own_begins_ = {};
}

void PackedStream::read_sample(std::int64_t sample, const PackedSample& to) const {
  TESSERA_ASSERT(to.tokens >= tokens_of(sample), "sample %ld has %ld tokens, and there is memory for %ld", sample,
                 tokens_of(sample), to.tokens);
  std::int64_t at = 0;
  for (const TokenRange& range : ranges_of(sample)) {
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

std::uint64_t PackedStream::hash() const {
  std::uint64_t hash = hash64("packed samples");
  for (const TokenRange& range : ranges_) {
    const std::int64_t words[2] = {range.first, range.tokens * 2 + (range.continues() ? 1 : 0)};
    hash = hash64({reinterpret_cast<const char*>(words), sizeof words}, hash);
  }
  return hash64({reinterpret_cast<const char*>(begins_.data()), begins_.size_bytes()}, hash);
}

}  // namespace tessera::io
