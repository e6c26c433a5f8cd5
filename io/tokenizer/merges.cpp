// SPDX-License-Identifier: Apache-2.0
// Short words by a search over all pairs for each merge, long ones with a heap; both do the same merges in the same
// order.

#include "io/tokenizer/merges.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <limits>

namespace tessera::io {

namespace {
constexpr std::size_t longest_short_word = 32;
constexpr std::uint32_t no_rank = std::numeric_limits<std::uint32_t>::max();
}  // namespace

void Merges::resize(std::size_t slots) {
  const std::vector<Slot> before = std::move(slots_);
  slots_.assign(slots, Slot{});
  for (const Slot& slot : before) {
    if (slot.key == free) continue;
    std::size_t at = slot_of(slot.key) & (slots - 1);
    while (slots_[at].key != free) at = (at + 1) & (slots - 1);
    slots_[at] = slot;
  }
}

void Merges::reserve(std::size_t merges) {
  if (2 * merges > slots_.size()) resize(std::bit_ceil(std::max<std::size_t>(2 * merges, 64)));
}

void Merges::add(std::int32_t left, std::int32_t right, Merge merge) {
  if ((count_ + 1) * 2 > slots_.size()) resize(slots_.empty() ? 64 : slots_.size() * 2);
  const std::uint64_t key = key_of(left, right);
  std::size_t at = slot_of(key) & (slots_.size() - 1);
  while (slots_[at].key != free && slots_[at].key != key) at = (at + 1) & (slots_.size() - 1);
  if (slots_[at].key == free) ++count_;
  slots_[at] = {key, merge};
}

void WordMerger::merge(std::vector<std::int32_t>& ids) {
  if (ids.size() < 2) return;
  if (ids.size() <= longest_short_word) merge_short(ids);
  else merge_long(ids);
}

void WordMerger::merge_short(std::vector<std::int32_t>& ids) {
  std::array<Merge, longest_short_word> pairs;  // pairs[i]: what ids i and i + 1 become
  std::size_t n = ids.size();
  const auto pair_at = [&](std::size_t i) {
    const Merge* found = merges_.find(ids[i], ids[i + 1]);
    return found != nullptr ? *found : Merge{no_rank, -1};
  };
  for (std::size_t i = 0; i + 1 < n; ++i) pairs[i] = pair_at(i);
  for (;;) {
    std::size_t best = 0;
    for (std::size_t i = 1; i + 1 < n; ++i)
      if (pairs[i].rank < pairs[best].rank) best = i;
    if (n < 2 || pairs[best].rank == no_rank) break;
    ids[best] = pairs[best].id;
    for (std::size_t i = best + 1; i + 1 < n; ++i) ids[i] = ids[i + 1];
    for (std::size_t i = best + 1; i + 2 < n; ++i) pairs[i] = pairs[i + 1];
    --n;
    if (best > 0) pairs[best - 1] = pair_at(best - 1);
    if (best + 1 < n) pairs[best] = pair_at(best);
  }
  ids.resize(n);
}

void WordMerger::consider(std::int32_t left, std::int32_t right) {
  const Merge* found =
      merges_.find(symbols_[static_cast<std::size_t>(left)].id, symbols_[static_cast<std::size_t>(right)].id);
  if (found == nullptr) return;
  heap_.push_back({found->rank, left, found->id});
  std::push_heap(heap_.begin(), heap_.end(), [](const Candidate& a, const Candidate& b) {
    return a.rank != b.rank ? a.rank > b.rank : a.at > b.at;
  });
}

void WordMerger::merge_long(std::vector<std::int32_t>& ids) {
  const auto n = static_cast<std::int32_t>(ids.size());
  const auto later = [](const Candidate& a, const Candidate& b) {
    return a.rank != b.rank ? a.rank > b.rank : a.at > b.at;
  };
  symbols_.resize(ids.size());
  heap_.clear();
  for (std::int32_t i = 0; i < n; ++i)
    symbols_[static_cast<std::size_t>(i)] = {ids[static_cast<std::size_t>(i)], i - 1, i + 1};
  for (std::int32_t i = 0; i + 1 < n; ++i) {
    const Merge* found = merges_.find(ids[static_cast<std::size_t>(i)], ids[static_cast<std::size_t>(i) + 1]);
    if (found != nullptr) heap_.push_back({found->rank, i, found->id});
  }
  std::make_heap(heap_.begin(), heap_.end(), later);
  while (!heap_.empty()) {
    std::pop_heap(heap_.begin(), heap_.end(), later);
    const Candidate best = heap_.back();
    heap_.pop_back();
    Symbol& left = symbols_[static_cast<std::size_t>(best.at)];
    if (left.id < 0 || left.after >= n) continue;
    Symbol& right = symbols_[static_cast<std::size_t>(left.after)];
    const Merge* now = merges_.find(left.id, right.id);
    if (now == nullptr || now->id != best.id) continue;  // outdated: the pair has changed
    left.id = best.id;
    left.after = right.after;
    right.id = -1;
    if (left.after < n) symbols_[static_cast<std::size_t>(left.after)].before = best.at;
    if (left.before >= 0) consider(left.before, best.at);
    if (left.after < n) consider(best.at, left.after);
  }
  ids.clear();
  for (const Symbol& symbol : symbols_)
    if (symbol.id >= 0) ids.push_back(symbol.id);
}

}  // namespace tessera::io
