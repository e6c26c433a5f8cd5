// SPDX-License-Identifier: Apache-2.0
// Parses a tokenizer.json; each component reads its own node.

#include "io/tokenizer/tables.hpp"

#include <algorithm>

#include "io/file/file.hpp"
#include "io/tokenizer/byte_hash.hpp"
#include "io/tokenizer/component.hpp"
#include "io/tokenizer/unicode.hpp"

namespace tessera::io {

TokenizerTables::TokenizerTables(std::string_view json, const std::string& where, const std::vector<AddedToken>& more)
    : hash(hash_bytes(json)) {
  unicode::prepare_classes();
  const TokenizerJson parsed = parse_tokenizer_json(json, where);
  const Component root(parsed.tree, "", where);
  // Truncation and padding are ignored: transformers sets them for every call.
  root.only({"version", "truncation", "padding", "added_tokens", "normalizer", "pre_tokenizer", "post_processor",
             "decoder", "model"});
  if (const std::string version = root.text("version", "1.0"); version != "1.0")
    throw root.child("version").refuse("is " + quote_name(version) + ", where 1.0 is known");
  pre_tokenizer = PreTokenizer(root.child("pre_tokenizer"));
  model = BpeModel(root.child("model"), parsed, pre_tokenizer.alphabet());
  pre_tokenizer.learn(model);
  normalizer = Normalizer(root.child("normalizer"));
  post_processor = PostProcessor(root.child("post_processor"));
  decoder = TokenDecoder(root.child("decoder"));
  if (decoder.byte_level() != (pre_tokenizer.alphabet() == BpeModel::Alphabet::bytes))
    throw root.child("decoder").refuse("does not undo the pre_tokenizer");
  size = model.vocabulary().size();
  read_added_tokens(root.child("added_tokens"), more);
  for (const auto* ids : {&post_processor.before, &post_processor.behind})
    for (const std::int32_t id : *ids)
      if (!has(id))
        throw root.child("post_processor").refuse("adds the id " + std::to_string(id) + ", which is not a token");
  const auto harmless = [](const AddedToken& t) {
    return !t.lstrip && !t.rstrip && t.content.find('\n') == t.content.npos;
  };
  is_splittable = pre_tokenizer.ends_pieces_at_newlines(model) && !normalizer.touches('\n') &&
                  std::all_of(added_tokens.begin(), added_tokens.end(), harmless);
}

const AddedToken* TokenizerTables::added(std::int32_t id) const {
  const auto found = added_by_id.find(id);
  return found == added_by_id.end() ? nullptr : &added_tokens[found->second];
}

void TokenizerTables::read_added_tokens(const Component& node, const std::vector<AddedToken>& more) {
  std::unordered_map<std::string, std::int32_t> seen;
  std::int32_t next = model.vocabulary().count();
  // Hugging Face's library looks the id up or assigns the next one; a file with another id would give other ids here.
  const auto require_id = [&](const AddedToken& token, std::int32_t id, const auto& refuse) {
    if (token.id != id)
      throw refuse(strfmt("gives %s the id %d, where Hugging Face's tokenizers count %d",
                          quote_name(token.content).c_str(), token.id, id));
  };
  const auto id_of = [&](const std::string& content) {
    const std::int32_t known = model.vocabulary().id_of(content);
    return known != Vocabulary::none ? known : next;
  };
  const auto add = [&](AddedToken token) {
    next = std::max(next, token.id + 1);
    size = std::max(size, token.id + 1);
    added_by_id.emplace(token.id, added_tokens.size());
    added_tokens.push_back(std::move(token));
  };
  for (const Component& entry : node.absent() ? std::vector<Component>() : node.elements()) {
    entry.only({"id", "content", "single_word", "lstrip", "rstrip", "normalized", "special"});
    AddedToken token{.content = entry.text("content", ""),
                     .id = static_cast<std::int32_t>(entry.integer("id", -1)),
                     .single_word = entry.flag("single_word", false),
                     .lstrip = entry.flag("lstrip", false),
                     .rstrip = entry.flag("rstrip", false),
                     .normalized = entry.flag("normalized", true),
                     .special = entry.flag("special", false)};
    if (token.content.empty()) throw entry.refuse("is empty");
    require_id(token, id_of(token.content), [&](const std::string& what) { return entry.refuse(what); });
    if (!seen.emplace(token.content, token.id).second || added_by_id.contains(token.id))
      throw entry.refuse("has the token " + quote_name(token.content) + " or its id twice");
    add(std::move(token));
  }
  for (AddedToken token : more) {
    const auto [known, is_new] = seen.emplace(token.content, id_of(token.content));
    if (token.id < 0) token.id = known->second;
    require_id(token, known->second, [&](const std::string& what) {
      return Error(ExitCode::data, "tokenizer_config.json or added_tokens.json " + what, node.where(),
                   "Save the tokenizer with transformers again");
    });
    if (!is_new) continue;
    hash =
        hash_bytes(token.content, hash + (token.single_word ? 1 : 0) + (token.lstrip ? 2 : 0) + (token.rstrip ? 4 : 0) +
                                      (token.normalized ? 8 : 0) + (token.special ? 16 : 0));
    add(std::move(token));
  }
  std::string buffer;
  for (const bool special : {true, false}) {  // special ones first: of two with one spelling, the first counts
    for (const AddedToken& token : added_tokens) {
      if (token.special != special) continue;
      if (token.normalized)
        normalized.add(token, normalizer.apply(token.content, Normalizer::Position::beginning, buffer));
      else raw.add(token, token.content);
    }
  }
}

}  // namespace tessera::io
