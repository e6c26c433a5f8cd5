// SPDX-License-Identifier: Apache-2.0
#pragma once
// A bounded cache from words to ids. A word replaces another one in the same slot.

#include <array>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>
#include <vector>

#include "io/tokenizer/byte_hash.hpp"

namespace tessera::io {

class WordCache {
 public:
  static constexpr std::size_t longest_word = 30, most_ids = 8, num_slots = std::size_t{1} << 15;  // 2 MiB

  WordCache() : slots_(num_slots) {}

  /// A word's bytes, padded with zeros, and its slot.
  struct Key {
    std::array<std::uint64_t, 4> words{};  // the last byte is the length
    std::size_t slot = 0;
  };
  /// The word has at most longest_word bytes, and at least one.
  [[nodiscard]] static Key key_of(std::string_view word) {
    Key key;
    std::memcpy(key.words.data(), word.data(), word.size());
    key.words[3] |= std::uint64_t{word.size()} << 56;
    std::uint64_t hash = mix(key.words[0], key.words[1]);
    if (word.size() > 16) hash = mix(hash, key.words[2]);
    key.slot = static_cast<std::size_t>(mix(hash, key.words[3])) & (num_slots - 1);
    return key;
  }
  /// The ids of a word; empty if it is not cached.
  [[nodiscard]] std::span<const std::int32_t> find(const Key& key) const {
    const Slot& slot = slots_[key.slot];
    std::uint64_t differs = 0;
    for (std::size_t i = 0; i < 4; ++i) differs |= slot.words[i] ^ key.words[i];
    return differs == 0 ? std::span(slot.ids).first(slot.count) : std::span<const std::int32_t>();
  }
  /// Ignores words of more than most_ids ids.
  void put(const Key& key, std::span<const std::int32_t> ids) {
    if (ids.size() > most_ids || ids.empty()) return;
    Slot& slot = slots_[key.slot];
    slot.words = key.words;
    slot.count = static_cast<std::uint32_t>(ids.size());
    std::memcpy(slot.ids.data(), ids.data(), ids.size_bytes());
  }

 private:
  struct Slot {
    std::array<std::uint64_t, 4> words{};  // of a free slot all zero, as no word's are
    std::array<std::int32_t, most_ids> ids{};
    std::uint32_t count = 0;
  };
  std::vector<Slot> slots_;
};

}  // namespace tessera::io
