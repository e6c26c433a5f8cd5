// SPDX-License-Identifier: Apache-2.0
// Parses the model, and maps pieces to ids before merging.

#include "io/tokenizer/bpe_model.hpp"

#include <algorithm>

#include "io/file/file.hpp"
#include "io/tokenizer/byte_level.hpp"
#include "io/tokenizer/component.hpp"
#include "io/tokenizer/other_kinds.hpp"
#include "io/tokenizer/utf8.hpp"

namespace tessera::io {

BpeModel::BpeModel(const Component& node, const TokenizerJson& json, Alphabet alphabet) : alphabet_(alphabet) {
  if (node.absent()) throw node.refuse("is missing");
  const std::string type = node.type();
  if (type != "BPE" && (!type.empty() || json.merges.empty()))
    throw Error(ExitCode::data, "the tokenizer's model is of type \"" + type + "\"; only BPE is built", node.where(),
                tokenization_elsewhere(directory_of(node.where())));
  node.only({"dropout", "unk_token", "continuing_subword_prefix", "end_of_word_suffix", "fuse_unk", "byte_fallback",
             "ignore_merges", "vocab", "merges"});
  const Component dropout = node.child("dropout");
  if (!dropout.absent() && dropout.json() != 0 && dropout.json() != 0.0) throw dropout.refuse("is not supported");
  for (const char* key : {"continuing_subword_prefix", "end_of_word_suffix"})
    if (!node.text(key, "").empty()) throw node.child(key).refuse("is not supported");
  fuse_unknown_ = node.flag("fuse_unk", false);
  byte_fallback_ = node.flag("byte_fallback", false);
  ignore_merges_ = node.flag("ignore_merges", false);
  read_vocabulary(node, json);
  read_merges(node, json);
  const std::string unknown = node.text("unk_token", "");
  if (!unknown.empty() && (unknown_ = vocabulary_.id_of(unknown)) == Vocabulary::none)
    throw node.refuse("has no token " + quote_name(unknown) + ", its unk_token");
  alphabet_ == Alphabet::bytes ? read_bytes(node) : read_fallback(node);
}

void BpeModel::read_vocabulary(const Component& node, const TokenizerJson& json) {
  if (json.vocab.empty()) throw node.refuse("has no vocabulary");
  const auto most = static_cast<std::int64_t>(4 * json.vocab.size() + 1024);
  vocabulary_.reserve(json.vocab.size());
  for (const auto& [token, id] : json.vocab) {
    if (id < 0 || id > most) throw node.refuse(strfmt("gives %s the id %ld", quote_name(token).c_str(), id));
    if (!vocabulary_.add(token, static_cast<std::int32_t>(id)))
      throw node.refuse("has the token " + quote_name(token) + " or its id " + std::to_string(id) + " twice");
  }
}

void BpeModel::read_merges(const Component& node, const TokenizerJson& json) {
  std::uint32_t rank = 0;
  std::string both;
  merges_.reserve(json.merges.size());
  merged_.reserve(json.merges.size());
  for (const auto& [left, right] : json.merges) {
    both.assign(left).append(right);
    const std::int32_t a = vocabulary_.id_of(left), b = vocabulary_.id_of(right),
                       next = merged_.empty() ? 0 : merged_.back() + 1,  // usually what this one makes
        made = vocabulary_.token(next) == both ? next : vocabulary_.id_of(both);
    if (a < 0 || b < 0 || made < 0 || left.empty() || right.empty())
      throw node.refuse("merges " + quote_name(left) + " and " + quote_name(right) + ", but not all three are tokens");
    merges_.add(a, b, {rank++, made});
    merged_.push_back(made);
  }
}

void BpeModel::read_bytes(const Component& node) {
  if (byte_fallback_) throw node.refuse("falls back to bytes that are its alphabet already");
  byte_ids_.fill(Vocabulary::none);
  if (ignore_merges_) bytes_.reserve(static_cast<std::size_t>(vocabulary_.count()));  // pieces are looked up in them
  for (std::int32_t id = 0; id < vocabulary_.size(); ++id) {
    if (!vocabulary_.has(id)) continue;
    const std::optional<std::string> bytes = bytes_of_spelling(vocabulary_.token(id));
    const std::string_view meant = bytes ? std::string_view(*bytes) : vocabulary_.token(id);
    const bool is_new = bytes && ignore_merges_ ? bytes_.add(meant, id) : bytes_.add_unsearchable(meant, id);
    TESSERA_ASSERT(is_new, "token %d stands for bytes of another", id);
    if (bytes && bytes->size() == 1) byte_ids_[static_cast<unsigned char>(bytes->front())] = id;
  }
  for (int b = 0; b < 256; ++b) {
    // No UTF-8 text has these bytes, and other text is repaired before; GPT-NeoX's vocabulary lacks them.
    const bool never_in_utf8 = b == 0xC0 || b == 0xC1 || b >= 0xF5;
    if (byte_ids_[static_cast<std::size_t>(b)] < 0 && !never_in_utf8)
      throw node.refuse(strfmt("has no token for the byte 0x%02X: text would be lost", b));
  }
}

void BpeModel::read_fallback(const Component& node) {
  character_ids_.assign(0x10000, Vocabulary::none);
  for (std::int32_t id = 0; id < vocabulary_.size(); ++id) {
    const std::string_view token = vocabulary_.token(id);
    if (token.empty() || utf8::step(token).length != static_cast<int>(token.size())) continue;
    const char32_t code = utf8::read(token.data()).code;
    if (code < character_ids_.size()) character_ids_[code] = id;
  }
  if (byte_fallback_) {
    for (int b = 0; b < 256; ++b) {
      byte_ids_[static_cast<std::size_t>(b)] = vocabulary_.id_of(strfmt("<0x%02X>", b));
      if (byte_ids_[static_cast<std::size_t>(b)] < 0)
        throw node.refuse(strfmt("falls back to bytes, but has no token <0x%02X>", b));
    }
  } else if (unknown_ == Vocabulary::none) {
    throw node.refuse("has neither unk_token nor byte_fallback: text would be lost");
  }
}

void BpeModel::symbols(std::string_view piece, std::vector<std::int32_t>& ids, bool& done) const {
  ids.clear();
  const Vocabulary& known = alphabet_ == Alphabet::bytes ? bytes_ : vocabulary_;
  done = false;
  if (ignore_merges_) {
    const std::int32_t known_id = known.id_of(piece);
    if (known_id != Vocabulary::none) {
      ids.push_back(known_id);
      done = true;
      return;
    }
  }
  if (alphabet_ == Alphabet::bytes) {
    for (const char c : piece) ids.push_back(byte_ids_[static_cast<unsigned char>(c)]);
    return;
  }
  bool after_unknown = false;
  for (std::size_t at = 0; at < piece.size();) {
    const utf8::Point point = utf8::read(piece.data() + at);
    const std::string_view character = piece.substr(at, static_cast<std::size_t>(point.length));
    at += character.size();
    const std::int32_t id =
        point.code < character_ids_.size() ? character_ids_[point.code] : vocabulary_.id_of(character);
    if (id != Vocabulary::none) {
      ids.push_back(id);
    } else if (byte_fallback_) {
      for (const char c : character) ids.push_back(byte_ids_[static_cast<unsigned char>(c)]);
    } else if (!(fuse_unknown_ && after_unknown)) {
      ids.push_back(unknown_);
    }
    after_unknown = id == Vocabulary::none;
  }
}

bool BpeModel::never_joins_before(std::string_view right) const {
  if (vocabulary_.id_of(right) == Vocabulary::none) return false;
  return std::none_of(merged_.begin(), merged_.end(), [&](std::int32_t id) {
    const std::string_view token = vocabulary_.token(id);
    for (std::size_t at = token.find(right); at != token.npos; at = token.find(right, at + right.size()))
      if (at > 0 && (at < right.size() || token.substr(at - right.size(), right.size()) != right)) return true;
    return false;
  });
}

BpeModel::AsciiPairs BpeModel::joined_pairs() const {
  AsciiPairs joined(128);
  const auto join_all_with = [&](std::size_t character) {
    joined[character].set();
    for (std::bitset<128>& row : joined) row.set(character);
  };
  for (std::size_t c = 0; c < joined.size(); ++c)
    if (!always_a_token(static_cast<char>(c))) join_all_with(c);
  for (const std::int32_t id : merged_) {
    const std::string_view token = vocabulary_.token(id);
    for (std::size_t i = 0; i + 1 < token.size(); ++i) {
      const auto left = static_cast<unsigned char>(token[i]), right = static_cast<unsigned char>(token[i + 1]);
      if (left < 128 && right < 128) joined[left].set(right);
    }
    for (std::size_t c = 0; c < joined.size() && token.find("<0x") != token.npos; ++c)
      if (token.find(strfmt("<0x%02zX>", c)) != token.npos) join_all_with(c);
  }
  return joined;
}

bool BpeModel::stands_alone(char character) const {
  const std::string as_byte = strfmt("<0x%02X>", static_cast<unsigned char>(character));
  return always_a_token(character) && std::none_of(merged_.begin(), merged_.end(), [&](std::int32_t id) {
           const std::string_view token = vocabulary_.token(id);
           return token.find(character) != token.npos || token.find(as_byte) != token.npos;
         });
}

bool BpeModel::always_a_token(char character) const {
  return alphabet_ == Alphabet::bytes || byte_fallback_ || vocabulary_.id_of({&character, 1}) != Vocabulary::none;
}

bool BpeModel::never_joins_behind(char left) const {
  if (!always_a_token(left)) return false;
  const Vocabulary& spelled = alphabet_ == Alphabet::bytes ? bytes_ : vocabulary_;
  const std::string as_byte = strfmt("<0x%02X>", static_cast<unsigned char>(left));
  return std::none_of(merged_.begin(), merged_.end(), [&](std::int32_t id) {
    const std::string_view token = spelled.token(id);
    const std::size_t found = token.find(left);
    return (found != token.npos && found + 1 < token.size()) ||
           (alphabet_ == Alphabet::characters && token.find(as_byte) != token.npos);
  });
}

}  // namespace tessera::io
