// SPDX-License-Identifier: Apache-2.0
#pragma once
// Tokens by text and by id.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tessera::io {

class Vocabulary {
 public:
  static constexpr std::int32_t none = -1;

  /// Memory for so many tokens.
  void reserve(std::size_t tokens);
  /// Adds a token under an id >= 0. False, without change, if the text or the id exists.
  /// Memory grows with the largest id.
  [[nodiscard]] bool add(std::string_view text, std::int32_t id);
  /// Adds a token that only token() finds; false if the id exists.
  [[nodiscard]] bool add_unsearchable(std::string_view text, std::int32_t id);

  /// The id of a text, or `none`.
  [[nodiscard]] std::int32_t id_of(std::string_view text) const;
  /// The text of an id; "" if there is none.
  [[nodiscard]] std::string_view token(std::int32_t id) const;
  [[nodiscard]] bool has(std::int32_t id) const;
  /// One more than the largest id.
  [[nodiscard]] std::int32_t size() const { return static_cast<std::int32_t>(entries_.size()); }
  /// The number of tokens.
  [[nodiscard]] std::int32_t count() const { return count_; }

 private:
  static constexpr std::uint32_t absent = ~std::uint32_t{0};
  /// A token's place in bytes_.
  struct Entry {
    std::uint32_t offset = 0, length = absent;
  };
  /// A place of the hash table: free, or a token, its text, and its hash, by which most others are told apart without
  /// being read, and which says where it goes in a larger table.
  struct Slot {
    std::int32_t id = none;
    std::uint32_t hash = 0;
    Entry text;
  };
  [[nodiscard]] std::string_view text_of(const Entry& entry) const {
    return {bytes_.data() + entry.offset, entry.length};
  }
  /// The slot of a text of this hash, or the free one for it.
  [[nodiscard]] std::size_t slot_of(std::string_view text, std::uint32_t hash) const;
  void resize(std::size_t slots);  // a power of two

  std::string bytes_;           // of all tokens, end to end
  std::vector<Entry> entries_;  // by id
  std::vector<Slot> slots_;     // open addressing
  std::size_t used_ = 0;
  std::int32_t count_ = 0;
};

}  // namespace tessera::io
