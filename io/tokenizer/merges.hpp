// SPDX-License-Identifier: Apache-2.0
#pragma once
// Byte-pair encoding on ids: the table of merges, and their application to a word.

#include <cstdint>
#include <vector>

namespace tessera::io {

/// The id that a pair of ids becomes, and the merge's rank: lower ranks are applied first.
struct Merge {
  std::uint32_t rank = 0;
  std::int32_t id = -1;
};

class Merges {
 public:
  /// Memory for so many merges.
  void reserve(std::size_t merges);
  /// A later merge of a pair replaces an earlier one.
  void add(std::int32_t left, std::int32_t right, Merge merge);
  /// Null if the pair does not merge.
  [[nodiscard]] const Merge* find(std::int32_t left, std::int32_t right) const {
    if (slots_.empty()) return nullptr;
    const std::uint64_t key = key_of(left, right);
    const std::size_t mask = slots_.size() - 1;
    for (std::size_t slot = slot_of(key) & mask;; slot = (slot + 1) & mask) {
      if (slots_[slot].key == key) return &slots_[slot].merge;
      if (slots_[slot].key == free) return nullptr;
    }
  }
  [[nodiscard]] std::size_t count() const { return count_; }
  [[nodiscard]] bool ranks_below(std::uint32_t bound) const { return highest_ < bound; }

 private:
  static constexpr std::uint64_t free = ~std::uint64_t{0};  // not a pair of ids, which are not negative
  struct Slot {
    std::uint64_t key = free;
    Merge merge;
  };
  [[nodiscard]] static std::uint64_t key_of(std::int32_t left, std::int32_t right) {
    return static_cast<std::uint64_t>(static_cast<std::uint32_t>(left)) << 32 | static_cast<std::uint32_t>(right);
  }
  [[nodiscard]] static std::size_t slot_of(std::uint64_t key) {
    key *= 0x9E3779B97F4A7C15ull;
    return static_cast<std::size_t>(key ^ key >> 29);
  }
  void resize(std::size_t slots);  // a power of two
  std::vector<Slot> slots_;
  std::size_t count_ = 0;
  std::uint32_t highest_ = 0;
};

/// Applies merges to words; reuses its memory.
class WordMerger {
 public:
  explicit WordMerger(const Merges& merges) : merges_(merges) {}
  /// Merges the ids of a word in place: always the pair of the lowest rank, the leftmost among equals. O(n log n) for n
  /// ids, fewer than 2^31.
  void merge(std::vector<std::int32_t>& ids);

 private:
  void merge_short(std::vector<std::int32_t>& ids);
  template <std::size_t size>
  void merge_within(std::vector<std::int32_t>& ids);
  void merge_long(std::vector<std::int32_t>& ids);
  struct Symbol {
    std::int32_t id = 0, before = 0, after = 0;  // id -1: merged into the one before
  };
  struct Candidate {
    std::uint32_t rank = 0;
    std::int32_t at = 0, id = 0;
  };
  void consider(std::int32_t left, std::int32_t right);

  const Merges& merges_;
  std::vector<Symbol> symbols_;
  std::vector<Candidate> heap_;
};

}  // namespace tessera::io
