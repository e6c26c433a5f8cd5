// SPDX-License-Identifier: Apache-2.0
// Splits documents into ranges, and assigns these to samples.
#include <algorithm>
#include <array>
#include <bit>
#include <functional>
#include <iterator>
#include <optional>
#include <set>
#include <span>
#include <tuple>
#include <utility>

#include "io/data/packing.hpp"
#include "runtime/base/error.hpp"
#include "runtime/base/hash.hpp"

namespace tessera::io {

Packing packing_of(std::string_view word) {
  constexpr std::string_view names[] = {"binpack", "sequential", "padded", "pairs", "unpaired", "rated"};
  const auto* const found = std::ranges::find(names, word);
  TESSERA_ASSERT(found != std::end(names), "packing %s", std::string(word).c_str());
  return static_cast<Packing>(found - std::begin(names));
}

Truncation truncation_of(std::string_view word) {
  if (word == "delete") return Truncation::remove;
  if (word == "left") return Truncation::left;
  if (word == "right") return Truncation::right;
  TESSERA_ASSERT(word == "split", "truncation %s", std::string(word).c_str());
  return Truncation::split;
}

namespace {

constexpr std::int64_t window = 1000;  // documents sorted at a time
constexpr std::int64_t count_block = 1024;

/// Splits documents into ranges, and assigns these to samples of one stream.
class Packer {
 public:
  Packer(const TokenStream& source, const PackingRule& rule, const TakeSample& take)
      : source_(source), masked_(source.masked()), rule_(rule), take_(take) {
    TESSERA_ASSERT(rule.tokens >= 1 && rule.tokens <= INT32_MAX / 2, "samples of %ld", rule.tokens);
  }

  void add(std::int64_t begin, std::int64_t end) {
    TESSERA_ASSERT(begin >= 0 && end >= begin && end <= source_.size(), "a document [%ld, %ld)", begin, end);
    if (has_pairs(rule_.packing)) return add_of_pair({begin, end});
    if (rule_.packing == Packing::unpaired) return add_of_unpaired({begin, end});
    split(begin, end);
    if (++in_window_ == window) pack();
  }
  PackingSummary finish() {
    if (chosen_ || !pair_.empty())
      throw Error(ExitCode::data, "the documents of the data set are not those of complete pairs", {},
                  "Give rows of pairs: files of tokens hold none");
    add_rejected_of_pairs();
    close_group();
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

  using Document = std::pair<std::int64_t, std::int64_t>;

  /// Chosen, rejected and, of rated pairs, the margin follow one another.
  void add_of_pair(const Document& document) {
    pair_.push_back(document);
    if (std::ssize(pair_) < documents_of_sample(rule_.packing)) return;
    PackingCount& count = summary_.count;
    bool longer = false, too_short = false, no_loss = false;
    std::vector<TokenRange> pair;
    for (auto [from, to] : std::span(pair_).first(2)) {
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
    for (const auto& [from, to] : std::span(pair_).subspan(2))
      pair.push_back({from, static_cast<std::int32_t>(to - from), 0});
    pair_.clear();
    if (too_short) ++count.dropped;
    else if (longer && rule_.truncation == Truncation::remove) ++count.too_long;
    else if (no_loss) ++count.no_loss, count.cut_no_loss += longer ? 1 : 0;
    else ++count.documents, count.cut += longer ? 1 : 0, close(pair);
  }

  /// Of two documents, those that are not empty; the rejected one of a pair later.
  void add_of_unpaired(const Document& document) {
    if (!chosen_) {
      chosen_ = document;
      return;
    }
    const auto [begin, end] = *chosen_;
    chosen_.reset();
    const bool has_chosen = end > begin, has_rejected = document.second > document.first;
    if (has_chosen) add_labelled({begin, end}, /*is_chosen=*/true);
    if (has_chosen && has_rejected) rejected_of_pairs_.push_back(document);
    else if (has_rejected) add_labelled(document, /*is_chosen=*/false);
    if (++in_window_ == window) add_rejected_of_pairs();
  }
  void add_rejected_of_pairs() {
    for (const Document& document : rejected_of_pairs_) add_labelled(document, /*is_chosen=*/false);
    if (rule_.packing == Packing::unpaired) in_window_ = 0;
    rejected_of_pairs_.clear();
  }

  void add_labelled(Document document, bool is_chosen) {
    auto& [from, to] = document;
    PackingCount& count = summary_.count;
    const bool longer = to - from > rule_.tokens;
    count.dropped += to - from < 2;
    count.too_long += longer && rule_.truncation == Truncation::remove;
    if (to - from < 2 || (longer && rule_.truncation == Truncation::remove)) return;
    const std::int64_t whole = to;
    if (longer && rule_.truncation == Truncation::left) from = to - rule_.tokens;
    else if (longer) to = from + rule_.tokens;
    const std::int64_t targets = count_targets(from + 1, to - from - 1);
    if (targets == 0) ++count.no_loss, count.cut_no_loss += longer;
    if (targets == 0) return;
    ++count.documents, count.cut += longer;
    const TokenRange row{from, static_cast<std::int32_t>(to - from), static_cast<std::int32_t>(2 * targets)};
    const TokenRange none{from, 0, 0};
    if (rule_.group == 0) return close({is_chosen ? row : none, is_chosen ? none : row});
    group_.push_back({row, first_target(from + 1), whole, is_chosen});
    if (std::ssize(group_) == rule_.group) close_group();
  }
  /// Each with the prompt of its own and the answer of the one before it, whose end is left out if it is too long.
  void close_group() {
    for (std::size_t i = 0; i < group_.size(); ++i) {
      const Labelled& own = group_[i];
      const Labelled& other = group_[(i + group_.size() - 1) % group_.size()];
      const std::int64_t prompt = own.answer - own.row.first, answer = other.end - other.answer;
      const std::int64_t kept = std::min(answer, rule_.tokens - prompt);
      const std::int64_t targets = kept < 2 ? 0 : count_targets(other.answer + 1, kept - 1);
      const TokenRange none{own.row.first, 0, 0};
      close({own.is_chosen ? own.row : none,
             own.is_chosen ? none : own.row,
             {own.row.first, static_cast<std::int32_t>(prompt), 0},
             {other.answer, static_cast<std::int32_t>(kept), static_cast<std::int32_t>(2 * targets)}});
    }
    group_.clear();
  }
  /// The first token with loss from `at` on; there is one.
  [[nodiscard]] std::int64_t first_target(std::int64_t at) const {
    std::uint8_t loss = 1;
    for (; masked_; ++at) {
      source_.read_loss(at, 1, &loss);
      if (loss != 0) break;
    }
    return at;
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
    std::array<std::uint8_t, count_block> loss{};
    std::int64_t targets = 0;
    for (std::int64_t at = 0; at < count; at += count_block) {
      const std::int64_t n = std::min(count_block, count - at);
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
    const bool unpaired = rule_.packing == Packing::unpaired, pairs = has_pairs(rule_.packing);
    std::int64_t tokens = 0, second = 0;
    for (std::size_t r = 0; r < sample.size(); ++r) {
      const TokenRange& range = sample[r];
      const bool counts = !(unpaired || pairs) || r < 2;  // what follows is a second sequence, or a margin
      (counts ? tokens : second) += range.tokens;
      if (pairs && counts) count.longest = std::max<std::int64_t>(count.longest, range.tokens);
      if (counts) {
        count.targets += range.targets();
        count.squares += std::int64_t{range.tokens} * range.tokens;
      }
      summary_.hash = hash64(static_cast<std::uint64_t>(range.tokens * std::int64_t{2} + (range.continues() ? 1 : 0)),
                             hash64(static_cast<std::uint64_t>(range.first), summary_.hash));
    }
    count.tokens += tokens;
    if (!pairs) count.longest = std::max({count.longest, tokens, second});
    ++count.samples;
    summary_.hash = hash64(sample.size(), summary_.hash);
    take_(sample);
  }

  const TokenStream& source_;
  const bool masked_;
  const PackingRule rule_;
  const TakeSample& take_;
  PackingSummary summary_{{}, hash64("packed samples")};
  struct Labelled {
    TokenRange row;
    std::int64_t answer, end;  // its first token; its end, also where the row has been shortened to less
    bool is_chosen;
  };
  std::vector<Document> pair_;               // of a pair that is not complete
  std::optional<Document> chosen_;           // of unpaired: whose rejected document is next
  std::vector<Document> rejected_of_pairs_;  // of unpaired: of the window
  std::vector<Labelled> group_;
  std::vector<TokenRange> ranges_;  // of the window
  std::int64_t in_window_ = 0;      // documents
  std::vector<TokenRange> open_;    // of the open sample
  std::int64_t used_ = 0;           // of its tokens
};

}  // namespace

std::vector<std::int32_t> margin_tokens(float margin) {
  std::vector<std::int32_t> digits;
  const auto bits = std::bit_cast<std::uint32_t>(margin);
  for (int shift = 28; shift >= 0 && margin != 0; shift -= 4)
    digits.push_back(static_cast<std::int32_t>(bits >> shift & 15U));
  return digits;
}

PackingSummary pack(const TokenStream& source, const DocumentSource& documents, const PackingRule& rule,
                    const TakeSample& take) {
  Packer packer(source, rule, take);
  documents([&](std::int64_t begin, std::int64_t end) { packer.add(begin, end); });
  return packer.finish();
}

}  // namespace tessera::io
