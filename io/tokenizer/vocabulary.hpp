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
  struct Entry {
    std::uint64_t offset = 0;
    std::uint32_t length = 0;
    bool there = false;
  };
  /// The slot of a text, or the free one for it.
  [[nodiscard]] std::size_t slot_of(std::string_view text) const;
  void grow();

  std::string bytes_;                // of all tokens, end to end
  std::vector<Entry> entries_;       // by id
  std::vector<std::int32_t> slots_;  // open addressing: ids, `none` where free
  std::size_t used_ = 0;
  std::int32_t count_ = 0;
};

}  // namespace tessera::io
