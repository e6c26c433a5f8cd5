// SPDX-License-Identifier: Apache-2.0
// Texts, rows and conversations to ids.

#include "io/corpus/document_encoder.hpp"

#include <algorithm>

#include "io/data/data_kind.hpp"
#include "io/data/loss_file.hpp"
#include "io/tokenizer/utf8.hpp"
#include "runtime/base/hash.hpp"

namespace tessera::io {

namespace {

/// Where the character before `end` begins.
std::size_t last_character(const std::string& text, std::size_t end) {
  return static_cast<std::size_t>(utf8::before(text.data() + end) - text.data());
}

/// A conversation of one assistant message is how ms-swift writes a text to pre-train on.
bool is_plain_text(const ConversationRow& conversation) {
  return conversation.messages.size() == 1 && conversation.role(0) == "assistant" &&
         !conversation.messages[0].contains("tool_calls");
}

}  // namespace

void EncodedDocuments::clear() {
  ids.clear();
  loss.clear();
  ends.clear();
  skipped = {};
  without_tools = 0;
  read = {};
}

std::uint8_t EncodedDocuments::index_of(double weight) {
  const auto value = static_cast<float>(weight);
  const auto found = std::find(weights.begin(), weights.end(), value);
  const auto index = static_cast<std::size_t>(found - weights.begin());
  if (found != weights.end()) return static_cast<std::uint8_t>(index);
  if (index >= std::tuple_size_v<LossWeights>) throw RowError{"the rows name more than 254 weights beside 0 and 1"};
  weights.push_back(value);
  return static_cast<std::uint8_t>(index);
}

DocumentEncoder::DocumentEncoder(const TextTokenizer& tokenizer, std::optional<std::int32_t> eos, RowSettings settings)
    : tables_(tokenizer.tables()), encoder_(tables_, Encoder::Memory::cache), eos_(eos), settings_(settings) {
  const std::vector<std::int32_t>& behind = tables_.post_processor.behind;
  if (!behind.empty() && eos_ == behind.back()) eos_.reset();  // the template adds it
}

void DocumentEncoder::encode_text(std::string_view text, bool begins, bool ends, EncodedDocuments& made) {
  std::vector<std::int32_t>& ids = made.ids;
  const auto& [before, behind] = tables_.post_processor;
  if (begins) ids.insert(ids.end(), before.begin(), before.end());
  encoder_.encode(text, begins ? Normalizer::Position::beginning : Normalizer::Position::inside, ids);
  if (ends) {
    ids.insert(ids.end(), behind.begin(), behind.end());
    if (eos_) ids.push_back(*eos_);
    made.ends.push_back(static_cast<std::int64_t>(ids.size()));
  }
  if (!made.masks) return;
  const std::size_t first = made.loss.size();
  made.loss.resize(ids.size(), 1);
  if (begins && first < made.loss.size()) made.loss[first] = 0;
}

void DocumentEncoder::encode_chat(const ConversationRow& conversation, EncodedDocuments& made) {
  TESSERA_ASSERT(settings_.chat != nullptr && made.masks, "conversations without a chat format");
  ChatText chat = settings_.chat->render(conversation);
  std::erase_if(chat.loss, [](const LossSpan& span) { return span.begin == span.end; });
  std::vector<std::size_t> offsets, before;
  std::vector<std::uint8_t> indices;  // of weights
  for (const LossSpan& span : chat.loss) {
    indices.push_back(made.index_of(span.weight));
    offsets.insert(offsets.end(), {span.begin, last_character(chat.text, span.end), span.end});
  }
  const std::size_t first = made.ids.size();
  encoder_.encode(chat.text, Normalizer::Position::beginning, made.ids, offsets, before);
  made.loss.resize(made.ids.size(), 0);
  for (const bool answers : {false, true}) {  // a token that is part of both belongs to the answer
    for (std::size_t k = 0; k < chat.loss.size(); ++k) {
      if (chat.loss[k].answer != answers) continue;
      const std::size_t* const at = before.data() + 3 * k;
      for (std::size_t id = std::max(at[0], first + 1); id < std::max(at[1] + 1, at[2]); ++id)
        made.loss[id] = indices[k];
    }
  }
  const bool any = std::any_of(made.loss.begin() + static_cast<std::ptrdiff_t>(first), made.loss.end(),
                               [](std::uint8_t index) { return index != 0; });
  if (!any) {
    made.ids.resize(first);
    made.loss.resize(first);
    throw RowError{"no token of the row has loss"};
  }
  made.ends.push_back(static_cast<std::int64_t>(made.ids.size()));
  made.without_tools += chat.lacks_tools ? 1 : 0;
}

void DocumentEncoder::encode_row(nlohmann::ordered_json row, RowForm form, const Columns& columns,
                                 EncodedDocuments& made) {
  rename_columns(row, columns);
  if (form == RowForm::text) return encode_text(text_of_row(row), true, true, made);
  const ConversationRow conversation = read_conversation(std::move(row), form);
  if (is_plain_text(conversation)) return encode_text(conversation.content(0), true, true, made);
  encode_chat(conversation, made);
}

void DocumentEncoder::encode(const Corpus& corpus, const Corpus::ByteRange& range,
                             const std::vector<std::int64_t>& all_rows, EncodedDocuments& made) {
  const std::string_view bytes = corpus.text(range);
  const DataFile& file = corpus.file(range.file);
  const utf8::Census read = utf8::census(bytes);
  made.read.add(read);
  if (settings_.strict && read.invalid > 0)
    throw not_utf8_error(corpus.line_name(range.file, range.offset + utf8::valid_prefix(bytes)));
  const RowFormat& format = corpus.format(range.file);
  if (format.layout == RowLayout::none) {
    const std::size_t zero = bytes.find('\0');
    if (zero != bytes.npos) throw zero_byte_error(file.path, range.offset + zero);
    return encode_text(bytes, range.begins, range.ends, made);
  }
  const std::uint64_t seed = hash64("rows of a file", settings_.seed);
  std::int64_t index = range.first_row;
  for_each_row(bytes, format, [&](const Row& row) {
    std::int64_t copies = 1;
    if (file.selects()) {
      const std::int64_t all = all_rows[range.file];
      copies = copies_of(index++, all, file.wanted(all), seed);
    }
    const auto where = [&] { return corpus.line_name(range.file, range.offset + row.offset); };
    try {
      if (copies == 0) return;
      std::int64_t repaired = 0;
      const nlohmann::ordered_json parsed = read_row(row.text, format, repaired);
      replaced_ += replaced_places(row.text, repaired, settings_.strict);
      for (; copies > 0; --copies) encode_row(parsed, corpus.form(range.file), corpus.columns(), made);
    } catch (const RowError& error) {
      if (settings_.strict) throw strict_error(error, where());
      made.skipped.add(where, error);
    }
  });
}

}  // namespace tessera::io
