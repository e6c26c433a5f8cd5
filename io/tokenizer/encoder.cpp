// Text to ids, step by step.

#include "io/tokenizer/encoder.hpp"

#include "io/tokenizer/utf8.hpp"
#include "runtime/base/error.hpp"

namespace tessera::io {

Encoder::Encoder(const TokenizerTables& tables, Memory memory) : tables_(tables), merger_(tables.model.merges()) {
  if (memory == Memory::cache) cache_.emplace();
}

void Encoder::encode(std::string_view text, Normalizer::Position position, std::vector<std::int32_t>& ids) {
  if (text.size() >= (std::size_t{1} << 31) / 4)  // prefixes and replacements can make it four times as long
    throw Error(ExitCode::data, strfmt("a text of %zu bytes is too long to be tokenized at once", text.size()), {},
                "Cut it into documents below 512 MiB");
  std::string repaired;
  if (utf8::valid_prefix(text) != text.size()) {
    repaired = utf8::repaired(text);
    text = repaired;
    ++repaired_;
  }
  if (text.empty()) return;
  sections_.clear();
  tables_.raw.split(text, sections_);
  for (const Section& section : sections_) {
    if (section.id >= 0) {
      ids.push_back(section.id);
      continue;
    }
    const bool at_beginning = section.text.data() == text.data();
    const Normalizer::Position here = at_beginning ? position : Normalizer::Position::beginning;
    const std::string_view normal = tables_.normalizer.apply(section.text, here, normalized_);
    if (normal.empty()) continue;
    const bool first = at_beginning && position == Normalizer::Position::beginning;
    if (tables_.normalized.empty()) {
      this->section(normal, here, first, ids);
      continue;
    }
    parts_.clear();
    tables_.normalized.split(normal, parts_);
    for (const Section& part : parts_) {
      const bool leads = part.text.data() == normal.data();
      if (part.id >= 0) ids.push_back(part.id);
      else this->section(part.text, leads ? here : Normalizer::Position::beginning, first && leads, ids);
    }
  }
}

void Encoder::section(std::string_view text, Normalizer::Position position, bool first,
                      std::vector<std::int32_t>& ids) {
  const std::string_view prepared = tables_.pre_tokenizer.prepare(text, position, first, prepared_);
  const char* at = prepared.data();
  const char* const end = at + prepared.size();
  for (const char* part = at; at != end;) {
    if (at == part) part = tables_.pre_tokenizer.part_end(at, end);
    const char* const stop = tables_.pre_tokenizer.next(at, part);
    piece({at, static_cast<std::size_t>(stop - at)}, ids);
    at = stop;
  }
}

void Encoder::piece(std::string_view text, std::vector<std::int32_t>& ids) {
  const bool cached = cache_ && text.size() <= WordCache::longest_word;
  WordCache::Key key;
  if (cached) {
    key = WordCache::key_of(text);
    const std::span<const std::int32_t> known = cache_->find(key);
    if (!known.empty()) {
      for (const std::int32_t id : known) ids.push_back(id);  // usually one or two
      return;
    }
  }
  bool done = false;
  tables_.model.symbols(text, word_, done);
  if (!done) merger_.merge(word_);
  ids.insert(ids.end(), word_.begin(), word_.end());
  if (cached) cache_->put(key, word_);
}

}  // namespace tessera::io
