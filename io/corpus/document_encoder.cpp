// SPDX-License-Identifier: Apache-2.0
// Texts, rows and conversations to ids.

#include "io/corpus/document_encoder.hpp"

#include <algorithm>
#include <iterator>
#include <span>

#include "io/chat/answer_spans.hpp"
#include "io/data/data_kind.hpp"
#include "io/data/loss_file.hpp"
#include "io/data/packing.hpp"
#include "io/tokenizer/utf8.hpp"
#include "runtime/base/hash.hpp"

namespace tessera::io {

namespace {

/// Where the character before `end` begins.
std::size_t last_character(const std::string& text, std::size_t end) {
  return static_cast<std::size_t>(utf8::before(text.data() + end) - text.data());
}

bool begins_with(std::span<const std::int32_t> ids, const std::vector<std::int32_t>& beginning) {
  return ids.size() >= beginning.size() && std::equal(beginning.begin(), beginning.end(), ids.begin());
}

void note(const std::vector<std::string>& unread, EncodedDocuments& made) {
  for (const std::string& key : unread) made.skipped.unread.add(key);
}

/// Of a plain text, which has no row to skip.
Error text_error(const RowError& error, const std::string& path) {
  return Error(ExitCode::data, error.why, path, "Take it out of the text");
}

/// A conversation of one assistant message is how ms-swift writes a text to pre-train on.
bool is_plain_text(const ConversationRow& conversation) {
  return conversation.messages.size() == 1 && conversation.role(0) == "assistant" && conversation.calls(0) == nullptr &&
         reasoning_of(conversation, 0).empty();
}

}  // namespace

void EncodedDocuments::clear() {
  ids.clear();
  loss.clear();
  ends.clear();
  skipped = {};
  without_tools = without_reasoning = without_messages = 0;
  pairs = equal_pairs = labelled = after_think = 0;
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

void DocumentEncoder::encode_text(std::string_view text, bool begins, bool ends, EncodedDocuments& made,
                                  double weight) {
  const std::uint8_t index = made.masks ? made.index_of(weight) : 1;
  std::vector<std::int32_t>& ids = made.ids;
  const auto& [before, behind] = tables_.post_processor;
  const std::size_t first = ids.size();
  if (begins) ids.insert(ids.end(), before.begin(), before.end());
  const std::size_t own = ids.size();
  encoder_.encode(text, begins ? Normalizer::Position::beginning : Normalizer::Position::inside, ids);
  refuse_images(first, made);
  const bool has_begin = begins && begins_with(std::span(ids).subspan(own), before);
  if (ends) {
    append_end(ids, own);
    made.ends.push_back(static_cast<std::int64_t>(ids.size()));
  }
  if (has_begin) {  // the text has the tokens before it
    ids.erase(ids.begin() + static_cast<std::ptrdiff_t>(first), ids.begin() + static_cast<std::ptrdiff_t>(own));
    if (ends) made.ends.back() = static_cast<std::int64_t>(ids.size());
  }
  if (!made.masks) return;
  const std::size_t at = made.loss.size();
  made.loss.resize(ids.size(), index);
  if (begins && at < made.loss.size()) made.loss[at] = 0;
}

/// Throws RowError if one of the ids from `first` on stands for an image; then they are gone.
void DocumentEncoder::refuse_images(std::size_t first, EncodedDocuments& made) const {
  const auto image = std::find_first_of(made.ids.begin() + static_cast<std::ptrdiff_t>(first), made.ids.end(),
                                        settings_.images.begin(), settings_.images.end());
  if (image == made.ids.end()) return;
  const std::int32_t id = *image;
  made.ids.resize(first);
  made.loss.resize(std::min(made.loss.size(), first));
  throw RowError{strfmt("token %d stands for an image, and text alone is read", id)};
}

/// Appends what ends a text whose ids begin at `first`, unless it ends so itself.
void DocumentEncoder::append_end(std::vector<std::int32_t>& ids, std::size_t first) const {
  const std::vector<std::int32_t>& behind = tables_.post_processor.behind;
  const auto text = std::span(ids).subspan(first);
  if (eos_ && !text.empty() && text.back() == *eos_) return;
  const bool has_behind = text.size() >= behind.size() && std::equal(behind.rbegin(), behind.rend(), text.rbegin());
  if (!has_behind) ids.insert(ids.end(), behind.begin(), behind.end());
  if (eos_) ids.push_back(*eos_);
}

void DocumentEncoder::encode_chat(ChatText chat, EncodedDocuments& made) {
  std::erase_if(chat.loss, [](const LossSpan& span) { return span.begin == span.end; });
  std::vector<std::size_t> offsets, before;
  std::vector<std::uint8_t> indices;  // of weights
  for (const LossSpan& span : chat.loss) {
    indices.push_back(made.index_of(span.weight));
    offsets.insert(offsets.end(), {span.begin, last_character(chat.text, span.end), span.end});
  }
  const std::size_t first = made.ids.size();
  encoder_.encode(chat.text, Normalizer::Position::beginning, made.ids, offsets, before);
  refuse_images(first, made);
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
  made.without_reasoning += chat.lacks_reasoning ? 1 : 0;
  made.without_messages += chat.lacks_message ? 1 : 0;
}

void DocumentEncoder::encode_conversation(ConversationRow conversation, EncodedDocuments& made) {
  std::vector<std::string> unread = std::move(conversation.unread);
  const auto add = [&](std::vector<std::string>& keys) { std::ranges::move(keys, std::back_inserter(unread)); };
  if (is_plain_text(conversation)) {
    const double weight = conversation.weights[0].value_or(1);
    if (weight == 0) throw RowError{"no token of the row has loss"};
    add(conversation.unknown);
    for (const auto& [name, value] : conversation.variables.items()) unread.push_back("chat_template_kwargs." + name);
    const std::vector<std::string> keys = checked(std::move(unread));
    encode_text(conversation.content(0), true, true, made, weight);
    made.without_tools += conversation.tools.is_null() ? 0 : 1;
    return note(keys, made);
  }
  if (settings_.chat == nullptr || !made.masks)
    throw RowError{"the row is a conversation, and the rows before it are texts"};
  ChatText chat = settings_.chat->render(conversation);
  add(chat.unread);
  const std::vector<std::string> keys = checked(std::move(unread));
  const bool after_think = settings_.labels && !chat.loss.empty() &&
                           std::string_view(chat.text).substr(0, chat.loss.back().begin).ends_with("</think>\n\n");
  encode_chat(std::move(chat), made);
  made.after_think += after_think ? 1 : 0;
  note(keys, made);
}

/// An answer to a plain text: the prompt has no loss, and what ends the document has.
void DocumentEncoder::encode_answer(const std::string& prompt, const std::string& answer, EncodedDocuments& made) {
  const auto& [before, behind] = tables_.post_processor;
  const std::size_t first = made.ids.size();
  const std::string text = prompt + answer;
  const std::size_t offset = prompt.size();
  std::vector<std::size_t> at;
  std::vector<std::int32_t> ids;
  encoder_.encode(text, Normalizer::Position::beginning, ids, std::span(&offset, 1), at);
  if (!begins_with(ids, before)) made.ids.insert(made.ids.end(), before.begin(), before.end());
  const std::size_t own = made.ids.size();
  made.ids.insert(made.ids.end(), ids.begin(), ids.end());
  refuse_images(first, made);
  append_end(made.ids, own);
  made.loss.resize(made.ids.size(), 0);
  for (std::size_t id = std::max(own + at[0], first + 1); id < made.ids.size(); ++id) made.loss[id] = 1;
  if (made.ids.size() - first < 2 || made.loss.back() == 0) throw RowError{"no token of the row has loss"};
  made.ends.push_back(static_cast<std::int64_t>(made.ids.size()));
}

/// Both documents, or none. The answer that a row with a label does not have is an empty one.
void DocumentEncoder::encode_pair(PairRow pair, EncodedDocuments& made) {
  const std::size_t first = made.ids.size(), documents = made.ends.size();
  const std::int64_t without_tools = made.without_tools, without_reasoning = made.without_reasoning,
                     without_messages = made.without_messages, after_think = made.after_think;
  const bool as_text = pair.text && (settings_.chat == nullptr || !pair.has_template);
  if (!as_text && settings_.chat == nullptr)
    throw RowError{"the row is a conversation, and there is no chat template",
                   "Give a model with a chat template, or one with --template"};
  ConversationRow& one = pair.has_chosen ? pair.chosen : pair.rejected;
  if (as_text && pair.has_template && (one.has_system() || !one.tools.is_null() || !one.variables.empty()))
    throw RowError{"the row has a system message, tools or chat_template_kwargs, and there is no chat template",
                   "Give a model with a chat template, or one with --template"};
  try {
    const std::vector<std::string> keys = as_text ? checked(std::move(one.unread)) : std::vector<std::string>();
    for (const bool chosen : {true, false}) {
      if (chosen ? !pair.has_chosen : !pair.has_rejected)
        made.ends.push_back(static_cast<std::int64_t>(made.ids.size()));
      else if (as_text) encode_answer(pair.text->prompt, chosen ? pair.text->chosen : pair.text->rejected, made);
      else encode_conversation(std::move(chosen ? pair.chosen : pair.rejected), made);
    }
    note(keys, made);
  } catch (const RowError&) {
    made.ids.resize(first);
    made.loss.resize(first);
    made.ends.resize(documents);
    made.without_tools = without_tools, made.without_reasoning = without_reasoning;
    made.without_messages = without_messages, made.after_think = after_think;
    throw;
  }
  made.labelled += pair.has_chosen && pair.has_rejected ? 0 : 1;
  if (!pair.has_chosen || !pair.has_rejected) return;
  const auto ids = std::span(made.ids).subspan(first);
  const std::size_t half = static_cast<std::size_t>(made.ends[documents]) - first;
  ++made.pairs;
  made.equal_pairs += std::ranges::equal(ids.first(half), ids.subspan(half)) ? 1 : 0;
}

/// Throws RowError if the margin is among the numbers that became null: it would be 0.
void DocumentEncoder::require_margin(nlohmann::ordered_json lost, const Columns& columns) {
  rename_columns(lost, columns);
  if (lost.contains("margin")) throw RowError{"\"margin\" is NaN or Infinity"};
}

/// A document behind those of the pair.
void DocumentEncoder::append_margin(float margin, EncodedDocuments& made) {
  for (const std::int32_t digit : margin_tokens(margin)) made.ids.push_back(digit);
  made.loss.resize(made.ids.size(), 0);
  made.ends.push_back(static_cast<std::int64_t>(made.ids.size()));
}

/// Each key once. With `strict`, throws RowError if there are any.
std::vector<std::string> DocumentEncoder::checked(std::vector<std::string> unread) const {
  std::ranges::sort(unread);
  unread.erase(std::ranges::unique(unread).begin(), unread.end());
  if (settings_.strict && !unread.empty()) throw unread_error(unread);
  return unread;
}

void DocumentEncoder::encode_row(nlohmann::ordered_json row, const Columns& columns, EncodedDocuments& made) {
  for (const auto& [from, to] : columns)
    if (row.contains(from)) made.renamed.insert(from);
  rename_columns(row, columns);
  if (settings_.labels) return encode_pair(read_labelled(std::move(row)), made);
  if (settings_.pairs) {
    const float margin = settings_.margins ? take_margin(row) : 0;
    encode_pair(read_pair(std::move(row)), made);
    return settings_.margins ? append_margin(margin, made) : void();
  }
  const RowForm form = require_form(row);
  if (form != RowForm::text) return encode_conversation(read_conversation(std::move(row), form), made);
  const std::string document = text_of_row(row);
  const std::vector<std::string> keys = checked(keys_with_values(row, {"text"}));
  encode_text(document, true, true, made);
  note(keys, made);
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
    try {
      return encode_text(bytes, range.begins, range.ends, made);
    } catch (const RowError& error) { throw text_error(error, file.path); }
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
      if (settings_.margins && repaired > 0 && format.layout != RowLayout::table)
        require_margin(lost_numbers(row.text), corpus.columns());
      replaced_ += replaced_places(row.text, repaired, settings_.strict);
      for (; copies > 0; --copies) encode_row(parsed, corpus.columns(), made);
    } catch (const RowError& error) {
      if (settings_.strict) throw strict_error(error, where());
      made.skipped.add(where, error);
    }
  });
}

}  // namespace tessera::io
