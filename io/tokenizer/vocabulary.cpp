// SPDX-License-Identifier: Apache-2.0
// A hash table over the joined bytes of all tokens.

#include "io/tokenizer/vocabulary.hpp"

#include "io/tokenizer/byte_hash.hpp"

namespace tessera::io {

std::size_t Vocabulary::slot_of(std::string_view text) const {
  const std::size_t mask = slots_.size() - 1;
  std::size_t slot = hash_bytes(text) & mask;
  while (slots_[slot] != none && token(slots_[slot]) != text) slot = (slot + 1) & mask;
  return slot;
}

void Vocabulary::grow() {
  const std::vector<std::int32_t> before = std::move(slots_);
  slots_.assign(before.empty() ? 64 : before.size() * 2, none);
  for (const std::int32_t id : before)
    if (id != none) slots_[slot_of(token(id))] = id;
}

bool Vocabulary::add_unsearchable(std::string_view text, std::int32_t id) {
  const auto index = static_cast<std::size_t>(id);
  if (has(id)) return false;
  if (index >= entries_.size()) entries_.resize(index + 1);
  entries_[index] = {bytes_.size(), static_cast<std::uint32_t>(text.size()), true};
  bytes_ += text;
  ++count_;
  return true;
}

bool Vocabulary::add(std::string_view text, std::int32_t id) {
  if ((used_ + 1) * 2 > slots_.size()) grow();
  const std::size_t slot = slot_of(text);
  if (slots_[slot] != none || !add_unsearchable(text, id)) return false;
  slots_[slot] = id;
  ++used_;
  return true;
}

std::int32_t Vocabulary::id_of(std::string_view text) const { return slots_.empty() ? none : slots_[slot_of(text)]; }

bool Vocabulary::has(std::int32_t id) const {
  return id >= 0 && static_cast<std::size_t>(id) < entries_.size() && entries_[static_cast<std::size_t>(id)].there;
}

std::string_view Vocabulary::token(std::int32_t id) const {
  if (!has(id)) return {};
  const Entry& entry = entries_[static_cast<std::size_t>(id)];
  return std::string_view(bytes_).substr(entry.offset, entry.length);
}

}  // namespace tessera::io
