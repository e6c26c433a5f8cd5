// SPDX-License-Identifier: Apache-2.0
#pragma once
// Bounded caches from words to ids. A word replaces another one in the same slot.

#include <array>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>
#include <vector>

#include "io/tokenizer/byte_hash.hpp"

namespace tessera::io {

/// Words of fewer than 8·num_words bytes and of at most ids_of_word ids. A slot is whole cache lines (64 bytes), which
/// these numbers, and a count, fill.
template <std::size_t num_words, std::size_t ids_of_word, std::size_t num_slots>
class CacheOfWords {
 public:
  static constexpr std::size_t longest = num_words * 8 - 1, most_ids = ids_of_word;
  CacheOfWords() : slots_(num_slots) {}

  /// A word's bytes, padded with zeros, and its slot. The word has at most `longest` bytes, and at least one.
  struct Key {
    std::array<std::uint64_t, num_words> words{};  // the last byte is the length
    std::size_t slot = 0;
  };
  [[nodiscard]] static Key key_of(std::string_view word) {
    Key key;
    if constexpr (num_words == 2) {  // by two loads within the word, which are faster than a copy of its length
      const char* const p = word.data();
      const std::size_t n = word.size();
      if (n >= 8) {
        key.words[0] = load<std::uint64_t>(p);
        key.words[1] = load<std::uint64_t>(p + n - 8) >> 8 * (15 - n) >> 8;
      } else if (n >= 4) {
        key.words[0] = load<std::uint32_t>(p) | std::uint64_t{load<std::uint32_t>(p + n - 4)} << 8 * (n - 4);
      } else {
        const auto byte = [&](std::size_t i) { return std::uint64_t{static_cast<unsigned char>(p[i])} << 8 * i; };
        key.words[0] = byte(0) | byte(n / 2) | byte(n - 1);
      }
    } else {
      std::memcpy(key.words.data(), word.data(), word.size());
    }
    key.words[num_words - 1] |= std::uint64_t{word.size()} << 56;
    std::uint64_t hash = mix(key.words[0], key.words[1]);
    for (std::size_t i = 2; i < num_words; i += 2) hash = mix(hash ^ key.words[i], key.words[i + 1]);
    key.slot = static_cast<std::size_t>(hash) & (num_slots - 1);
    return key;
  }
  /// Writes most_ids numbers, the ids of a word first, and returns how many these are; 0: it is not cached.
  [[nodiscard]] std::size_t find(const Key& key, std::int32_t* ids) const {
    const Slot& slot = slots_[key.slot];
    std::uint64_t differs = 0;
    for (std::size_t i = 0; i < num_words; ++i) differs |= slot.words[i] ^ key.words[i];
    if (differs != 0) return 0;
    std::memcpy(ids, slot.ids.data(), sizeof slot.ids);
    return slot.count;
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
  template <class T>
  static T load(const char* p) {
    T value;
    std::memcpy(&value, p, sizeof value);
    return value;
  }
  struct alignas(64) Slot {
    std::array<std::uint64_t, num_words> words{};  // of a free slot all zero, as no word's are
    std::array<std::int32_t, most_ids> ids{};
    std::uint32_t count = 0;
  };
  std::vector<Slot> slots_;
};

using ShortWords = CacheOfWords<2, 11, std::size_t{1} << 15>;
using LongWords = CacheOfWords<8, 15, std::size_t{1} << 14>;

}  // namespace tessera::io
