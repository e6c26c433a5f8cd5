// SPDX-License-Identifier: Apache-2.0
// A hash table over the joined bytes of all tokens.

#include "io/tokenizer/vocabulary.hpp"

#include <algorithm>
#include <bit>

#include "io/tokenizer/byte_hash.hpp"
#include "runtime/base/error.hpp"

namespace tessera::io {

static std::uint32_t hash_of(std::string_view text) { return static_cast<std::uint32_t>(hash_bytes(text)); }

std::size_t Vocabulary::slot_of(std::string_view text, std::uint32_t hash) const {
  const std::size_t mask = slots_.size() - 1;
  std::size_t slot = hash & mask;
  while (slots_[slot].id != none && (slots_[slot].hash != hash || text_of(slots_[slot].text) != text))
    slot = (slot + 1) & mask;
  return slot;
}

void Vocabulary::resize(std::size_t slots) {
  const std::vector<Slot> before = std::move(slots_);
  slots_.assign(slots, Slot{});
  for (const Slot& one : before) {
    if (one.id == none) continue;
    std::size_t slot = one.hash & (slots - 1);
    while (slots_[slot].id != none) slot = (slot + 1) & (slots - 1);
    slots_[slot] = one;
  }
}

void Vocabulary::reserve(std::size_t tokens) {
  entries_.reserve(tokens);
  if (2 * tokens > slots_.size()) resize(std::bit_ceil(std::max<std::size_t>(2 * tokens, 64)));
}

bool Vocabulary::add_unsearchable(std::string_view text, std::int32_t id) {
  const auto index = static_cast<std::size_t>(id);
  if (has(id)) return false;
  if (index >= entries_.size()) entries_.resize(index + 1);
  TESSERA_ASSERT(bytes_.size() + text.size() < absent, "%zu bytes of tokens", bytes_.size());
  entries_[index] = {static_cast<std::uint32_t>(bytes_.size()), static_cast<std::uint32_t>(text.size())};
  bytes_ += text;
  ++count_;
  return true;
}

bool Vocabulary::add(std::string_view text, std::int32_t id) {
  if ((used_ + 1) * 2 > slots_.size()) resize(slots_.empty() ? 64 : slots_.size() * 2);
  const std::uint32_t hash = hash_of(text);
  const std::size_t slot = slot_of(text, hash);
  if (slots_[slot].id != none || !add_unsearchable(text, id)) return false;
  slots_[slot] = {id, hash, entries_[static_cast<std::size_t>(id)]};
  ++used_;
  return true;
}

std::int32_t Vocabulary::id_of(std::string_view text) const {
  return slots_.empty() ? none : slots_[slot_of(text, hash_of(text))].id;
}

bool Vocabulary::has(std::int32_t id) const {
  return id >= 0 && static_cast<std::size_t>(id) < entries_.size() &&
         entries_[static_cast<std::size_t>(id)].length != absent;
}

std::string_view Vocabulary::token(std::int32_t id) const {
  return has(id) ? text_of(entries_[static_cast<std::size_t>(id)]) : std::string_view();
}

}  // namespace tessera::io
