// SPDX-License-Identifier: Apache-2.0
// Text to ids, step by step.

#include "io/tokenizer/encoder.hpp"

#include <algorithm>

#include "io/tokenizer/utf8.hpp"
#include "runtime/base/error.hpp"

namespace tessera::io {

namespace {

constexpr std::size_t ids_at_once = 4096;  // for which memory is made before there are so many

/// Divides ascending offsets of a text among its parts, in order.
class OffsetsWithin {
 public:
  OffsetsWithin(std::span<const std::size_t> offsets, std::string_view text) : offsets_(offsets), text_(text) {}
  [[nodiscard]] bool any() const { return !offsets_.empty(); }
  /// Those in `part` of the text and before its end, counted from its beginning.
  [[nodiscard]] std::vector<std::size_t> take(std::string_view part) {
    const auto begin = static_cast<std::size_t>(part.data() - text_.data());
    std::vector<std::size_t> taken;
    while (!offsets_.empty() && offsets_.front() < begin + part.size()) {
      taken.push_back(offsets_.front() - begin);
      offsets_ = offsets_.subspan(1);
    }
    return taken;
  }

 private:
  std::span<const std::size_t> offsets_;
  std::string_view text_;
};

/// Turns offsets of `text` into offsets of `whole`, its image. image(part, begins) is the image of a part.
template <class Image>
void map_offsets(std::string_view text, std::string_view whole, std::vector<std::size_t>& offsets, const Image& image) {
  std::vector<std::size_t> mapped;
  std::size_t done = 0, at = 0;
  bool separate = true;  // the image is that of the parts, joined
  const auto advance = [&](std::size_t offset) {
    if (offset == done || !separate) return;
    const std::string_view part = image(text.substr(done, offset - done), done == 0);
    separate = whole.substr(at).starts_with(part);
    at += part.size();
    done = offset;
  };
  for (const std::size_t offset : offsets) {
    advance(offset);
    mapped.push_back(at);
  }
  advance(text.size());
  if (!separate || at != whole.size()) {
    // A step joins characters across an offset: it maps to the end of what its prefix has in common with `whole`.
    for (std::size_t i = 0; i < offsets.size(); ++i) {
      const std::string_view prefix = image(text.substr(0, offsets[i]), true);
      const auto differs = std::mismatch(prefix.begin(), prefix.end(), whole.begin(), whole.end());
      mapped[i] = static_cast<std::size_t>(differs.first - prefix.begin());
    }
  }
  offsets = std::move(mapped);
}

}  // namespace

Encoder::Encoder(const TokenizerTables& tables, Memory memory)
    : tables_(tables), merger_(tables.model.merges()), pieces_(tables.pre_tokenizer) {
  if (memory == Memory::cache) cache_.emplace();
}

void Encoder::encode(std::string_view text, Normalizer::Position position, std::vector<std::int32_t>& ids) {
  std::vector<std::size_t> none;
  encode(text, position, ids, {}, none);
}

void Encoder::encode(std::string_view text, Normalizer::Position position, std::vector<std::int32_t>& ids,
                     std::span<const std::size_t> offsets, std::vector<std::size_t>& ids_before) {
  if (text.size() >= (std::size_t{1} << 31) / 4)  // prefixes and replacements can make it four times as long
    throw Error(ExitCode::data, strfmt("a text of %zu bytes is too long to be tokenized at once", text.size()), {},
                "Cut it into documents below 512 MiB");
  std::string repaired;
  if (utf8::valid_prefix(text) != text.size()) {
    TESSERA_ASSERT(offsets.empty(), "offsets in a text of %zu bytes that is not UTF-8", text.size());
    repaired = utf8::repaired(text);
    text = repaired;
    ++repaired_;
  }
  ids_before.clear();
  ids_before_ = &ids_before;
  OffsetsWithin within(offsets, text);
  sections_.clear();
  if (!text.empty()) tables_.raw.split(text, sections_);
  for (const Section& section : sections_) {
    Offsets here = within.take(section.text);
    if (section.id >= 0) {
      ids_before.insert(ids_before.end(), here.size(), ids.size());
      ids.push_back(section.id);
      continue;
    }
    const bool at_beginning = section.text.data() == text.data();
    between_added(section.text, at_beginning ? position : Normalizer::Position::beginning,
                  at_beginning && position == Normalizer::Position::beginning, ids, std::move(here));
  }
  ids_before.resize(offsets.size(), ids.size());
}

void Encoder::between_added(std::string_view text, Normalizer::Position position, bool first,
                            std::vector<std::int32_t>& ids, Offsets offsets) {
  const std::string_view normal = tables_.normalizer.apply(text, position, normalized_);
  if (!offsets.empty() && normal.data() != text.data()) {
    std::string buffer;
    const auto image = [&](std::string_view part, bool begins) {
      return tables_.normalizer.apply(part, begins ? position : Normalizer::Position::inside, buffer);
    };
    map_offsets(text, normal, offsets, image);
  }
  OffsetsWithin within(offsets, normal);
  const std::size_t count = ids_before_->size() + offsets.size();
  if (tables_.normalized.empty()) {
    if (!normal.empty()) section(normal, position, first, ids, within.take(normal));
  } else if (!normal.empty()) {
    parts_.clear();
    tables_.normalized.split(normal, parts_);
    for (const Section& part : parts_) {
      const bool leads = part.text.data() == normal.data();
      Offsets here = within.take(part.text);
      if (part.id < 0) {
        section(part.text, leads ? position : Normalizer::Position::beginning, first && leads, ids, std::move(here));
        continue;
      }
      ids_before_->insert(ids_before_->end(), here.size(), ids.size());
      ids.push_back(part.id);
    }
  }
  ids_before_->resize(count, ids.size());
}

void Encoder::section(std::string_view text, Normalizer::Position position, bool first, std::vector<std::int32_t>& ids,
                      Offsets offsets) {
  const std::string_view prepared = tables_.pre_tokenizer.prepare(text, position, first, prepared_);
  if (!offsets.empty() && prepared.data() != text.data()) {
    std::string buffer;
    const auto image = [&](std::string_view part, bool begins) {
      return tables_.pre_tokenizer.prepare(part, begins ? position : Normalizer::Position::inside, begins && first,
                                           buffer);
    };
    map_offsets(text, prepared, offsets, image);
  }
  OffsetsWithin within(offsets, prepared);
  const std::size_t count = ids_before_->size() + offsets.size();
  pieces_.start(prepared);
  std::size_t used = ids.size();
  const char* const end = prepared.data() + prepared.size();
  for (const char* at = prepared.data(); at != end;) {
    const char* const stop = pieces_.next();
    const std::string_view word(at, static_cast<std::size_t>(stop - at));
    // A piece has no more ids than bytes.
    if (const std::size_t most = word.size() + LongWords::most_ids; ids.size() - used < most)
      ids.resize(used + most + ids_at_once);
    const std::size_t added = piece(word, ids.data() + used);
    if (within.any()) count_in_piece(word, within.take(word), std::span(ids).subspan(used, added), used);
    used += added;
    at = stop;
  }
  ids.resize(used);
  ids_before_->resize(count, ids.size());
}

void Encoder::count_in_piece(std::string_view text, std::span<const std::size_t> offsets,
                             std::span<const std::int32_t> ids, std::size_t first) {
  const bool bytes = tables_.pre_tokenizer.alphabet() == BpeModel::Alphabet::bytes;
  std::size_t end = 0, k = 0;  // ids [0, k) end at `end`
  for (const std::size_t offset : offsets) {
    while (k < ids.size()) {
      const std::string_view token = bytes ? tables_.model.bytes_of(ids[k]) : tables_.model.vocabulary().token(ids[k]);
      std::size_t length = token.size();
      // <0xNN> and the unknown token are not spelled in the text: of the first one knows the length, one byte.
      if (!bytes && text.substr(end, length) != token) length = tables_.model.byte_fallback() ? 1 : text.size() - end;
      if (end + length > offset) break;
      end += length;
      ++k;
    }
    ids_before_->push_back(first + k);
  }
}

template <class Cache>
std::size_t Encoder::cached_piece(std::string_view text, Cache& cache, std::int32_t* ids) {
  const typename Cache::Key key = Cache::key_of(text);
  if (const std::size_t count = cache.find(key, ids)) return count;
  const std::size_t count = merged_piece(text, ids);
  cache.put(key, word_);
  return count;
}

std::size_t Encoder::merged_piece(std::string_view text, std::int32_t* ids) {
  bool done = false;
  tables_.model.symbols(text, word_, done);
  if (!done) merger_.merge(word_);
  std::copy(word_.begin(), word_.end(), ids);
  return word_.size();
}

std::size_t Encoder::piece(std::string_view text, std::int32_t* ids) {
  if (cache_ && text.size() <= ShortWords::longest) return cached_piece(text, cache_->short_words, ids);
  if (cache_ && text.size() <= LongWords::longest) return cached_piece(text, cache_->long_words, ids);
  return merged_piece(text, ids);
}

}  // namespace tessera::io
