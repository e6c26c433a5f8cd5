// SPDX-License-Identifier: Apache-2.0
// Short words by a search over all pairs for each merge (a minimum, which compilers vectorize), long ones with a heap;
// both do the same merges in the same order.

#include "io/tokenizer/merges.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <limits>

namespace tessera::io {

namespace {
constexpr std::size_t longest_short_word = 32;
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
  highest_ = std::max(highest_, merge.rank);
}

void WordMerger::merge(std::vector<std::int32_t>& ids) {
  if (ids.size() < 2) return;
  const bool fits = merges_.ranks_below((std::uint32_t{1} << 31) / longest_short_word);  // rank and place, in 31 bits
  if (ids.size() <= longest_short_word && fits) merge_short(ids);
  else merge_long(ids);
}

void WordMerger::merge_short(std::vector<std::int32_t>& ids) {
  if (ids.size() <= longest_short_word / 2) merge_within<longest_short_word / 2>(ids);
  else merge_within<longest_short_word>(ids);
}

template <std::size_t size>
void WordMerger::merge_within(std::vector<std::int32_t>& ids) {
  constexpr std::int32_t none = std::numeric_limits<std::int32_t>::max();
  std::array<std::int32_t, size> keys;  // of the pair that begins at a place: rank, then place; none: it does not merge
  std::array<std::int32_t, size> made;  // what it becomes
  std::array<std::uint8_t, size + 1> after, before;  // the places of the ids behind and before one
  keys.fill(none);
  const std::size_t n = ids.size();
  const auto consider = [&](std::size_t left, std::size_t right) {
    const Merge* found = merges_.find(ids[left], ids[right]);
    keys[left] = found != nullptr ? static_cast<std::int32_t>(found->rank * size + left) : none;
    if (found != nullptr) made[left] = found->id;
  };
  for (std::size_t i = 0; i < n; ++i) {
    after[i] = static_cast<std::uint8_t>(i + 1);
    before[i + 1] = static_cast<std::uint8_t>(i);
    if (i + 1 < n) consider(i, i + 1);
  }
  for (;;) {
    std::int32_t least = none;
    for (std::size_t i = 0; i < size; ++i) least = keys[i] < least ? keys[i] : least;
    if (least == none) break;
    const auto at = static_cast<std::size_t>(least) % size;
    const std::size_t gone = after[at], behind = after[gone];
    ids[at] = made[at];
    ids[gone] = -1;
    keys[gone] = none;
    after[at] = static_cast<std::uint8_t>(behind);
    if (behind < n) {
      before[behind] = static_cast<std::uint8_t>(at);
      consider(at, behind);
    } else {
      keys[at] = none;
    }
    if (at > 0) consider(before[at], at);
  }
  std::erase(ids, -1);
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
