// SPDX-License-Identifier: Apache-2.0
// Loading, TextEncoder and StreamDecoder.

#include "io/tokenizer/tokenizer.hpp"

#include <algorithm>
#include <filesystem>

#include "io/file/file.hpp"
#include "io/file/text_file.hpp"
#include "io/tokenizer/document_ids.hpp"
#include "io/tokenizer/encoder.hpp"
#include "io/tokenizer/other_kinds.hpp"
#include "io/tokenizer/tokenizer_config.hpp"
#include "io/tokenizer/vocab_merges.hpp"

namespace tessera::io {

namespace {

constexpr std::size_t largest_file = std::size_t{256} << 20;

bool is_vocab(const std::string& file) { return std::filesystem::path(file).filename() == "vocab.json"; }

/// Adds a token to a joiner, according to the decoder.
void join(const TokenizerTables& tables, std::int32_t id, Special special, TokenJoiner& joiner, std::string& out) {
  const AddedToken* added = tables.added(id);
  if (added != nullptr && added->special && special == Special::without) return;
  if (added == nullptr && !tables.model.vocabulary().has(id)) return;
  if (tables.decoder.byte_level())
    joiner.push_bytes(added != nullptr ? added->content : tables.model.bytes_of(id), out);
  else joiner.push_token(added != nullptr ? added->content : tables.model.vocabulary().token(id), out);
}

/// transformers takes add_prefix_space of tokenizer_config.json; the file's is read here.
void require_prefix(const TokenizerConfig& config, const TokenizerTables& tables, const std::string& file) {
  const std::optional<bool> wanted = config.flag("add_prefix_space"), read = tables.pre_tokenizer.adds_prefix_space();
  if (!config.class_has_pipeline() || !wanted || !read || *wanted == *read) return;
  const auto text = [](bool flag) { return flag ? "true" : "false"; };
  throw Error(ExitCode::data,
              strfmt("add_prefix_space is %s, and %s in tokenizer_config.json, which transformers takes for a %s",
                     text(*read), text(*wanted), config.tokenizer_class().c_str()),
              file, "Set both alike");
}

/// Whether transformers 5 reads a tokenizer.json of this model_type as it is, whatever the class: of the families here,
/// those that TOKENIZER_MAPPING_NAMES of tokenization_auto.py has with TokenizersBackend.
bool is_read_as_it_is(const std::string& model_type) {
  constexpr const char* model_types[] = {"mistral", "mixtral", "mistral3", "phi3", "granite", "olmo2"};
  return std::ranges::find(model_types, model_type) != std::end(model_types);
}

std::string difference_of(const TokenizerConfig& config, const TokenizerTables& tables) {
  if (const std::string code = config.class_beside_it(); !code.empty())
    return "\"auto_map\" of tokenizer_config.json names " + quote_name(code) +
           ", of code beside the tokenizer, which is never run: ids are those of the tokenizer's own files. "
           "transformers runs that code where it is told to trust it";
  if (config.tokenizer_class() != "LlamaTokenizer" || is_read_as_it_is(config.model_type())) return {};
  if (tables.decoder.byte_level()) return {};
  const bool prefix = config.flag("add_prefix_space").value_or(true), legacy = config.flag("legacy").value_or(false);
  if (tables.normalizer.empty() && tables.pre_tokenizer.is_llama_pipeline(prefix, legacy)) return {};
  return "transformers 5 gives LlamaTokenizer a pipeline of its own in place of that of tokenizer.json, which is read "
         "here as by transformers 4: texts behind special tokens, or which begin with spaces, may have other ids there";
}

void encode_with(const TokenizerTables& tables, Encoder& encoder, std::string_view text, Special special,
                 std::vector<std::int32_t>& ids) {
  const auto& [before, behind] = tables.post_processor;
  if (special == Special::with) ids.insert(ids.end(), before.begin(), before.end());
  encoder.encode(text, Normalizer::Position::beginning, ids);
  if (special == Special::with) ids.insert(ids.end(), behind.begin(), behind.end());
}

}  // namespace

TextTokenizer TextTokenizer::load(const std::string& path) {
  const std::string found = file_at(path), file = found.empty() ? path : found;
  const std::string json = is_vocab(file) ? tokenizer_json_of(directory_of(file)) : read_text(file, largest_file);
  refuse_other_tokenizers(json, file);
  const TokenizerConfig config(directory_of(file));
  TextTokenizer tokenizer(std::make_shared<const TokenizerTables>(json, file, config.tokens()));
  require_prefix(config, tokenizer.tables(), file);
  tokenizer.difference_ = difference_of(config, tokenizer.tables());
  DocumentIds ids =
      read_document_ids(directory_of(file), [&](std::string_view token) { return tokenizer.id_of(token); });
  tokenizer.bos_id_ = ids.bos;
  tokenizer.eos_ids_ = std::move(ids.eos);
  return tokenizer;
}

TextTokenizer TextTokenizer::parse(std::string_view json, const std::string& where) {
  return TextTokenizer(std::make_shared<const TokenizerTables>(json, where));
}

std::string TextTokenizer::file_at(const std::string& path) {
  std::error_code ignored;
  const auto is_file = [&](const std::filesystem::path& file) {
    return std::filesystem::is_regular_file(file, ignored);
  };
  const std::filesystem::path given = path;
  if (!std::filesystem::is_directory(given, ignored))
    return is_file(given) && (!is_vocab(path) || is_file(given.parent_path() / "merges.txt")) ? path : "";
  if (is_file(given / "tokenizer.json")) return (given / "tokenizer.json").string();
  return is_file(given / "vocab.json") && is_file(given / "merges.txt") ? (given / "vocab.json").string() : "";
}

std::vector<std::int32_t> TextTokenizer::encode(std::string_view text, Special special) const {
  std::vector<std::int32_t> ids;
  Encoder encoder(*tables_, Encoder::Memory::none);
  encode_with(*tables_, encoder, text, special, ids);
  return ids;
}

std::string TextTokenizer::decode(std::span<const std::int32_t> ids, Special special) const {
  std::string text;
  TokenJoiner joiner(tables_->decoder);
  joiner.hold_runs();
  for (const std::int32_t id : ids) join(*tables_, id, special, joiner, text);
  joiner.finish(text);
  return text;
}

std::int32_t TextTokenizer::vocab_size() const { return tables_->size; }
std::optional<std::int32_t> TextTokenizer::bos_id() const { return bos_id_; }
std::optional<std::int32_t> TextTokenizer::eos_id() const {
  return eos_ids_.empty() ? std::nullopt : std::optional<std::int32_t>(eos_ids_.front());
}
const std::vector<std::int32_t>& TextTokenizer::eos_ids() const { return eos_ids_; }

std::optional<std::int32_t> TextTokenizer::id_of(std::string_view token) const {
  for (const AddedToken& added : tables_->added_tokens)
    if (added.content == token) return added.id;
  const std::int32_t id = tables_->model.vocabulary().id_of(token);
  return id == Vocabulary::none ? std::nullopt : std::optional<std::int32_t>(id);
}

std::string_view TextTokenizer::token(std::int32_t id) const {
  const AddedToken* added = tables_->added(id);
  return added != nullptr ? std::string_view(added->content) : tables_->model.vocabulary().token(id);
}

bool TextTokenizer::is_special(std::int32_t id) const {
  const AddedToken* added = tables_->added(id);
  return added != nullptr && added->special;
}

std::string TextTokenizer::describe() const {
  return tables_->pre_tokenizer.describe() + ", " + tables_->normalizer.describe() +
         std::to_string(tables_->model.vocabulary().count()) + " tokens, " +
         std::to_string(tables_->added_tokens.size()) + " added";
}

std::uint64_t TextTokenizer::hash() const { return tables_->hash; }

struct TextEncoder::State {
  explicit State(const TextTokenizer& of) : tokenizer(of), encoder(of.tables(), Encoder::Memory::cache) {}
  TextTokenizer tokenizer;  // keeps the tables alive
  Encoder encoder;
};

TextEncoder::TextEncoder(const TextTokenizer& tokenizer) : state_(std::make_unique<State>(tokenizer)) {}
TextEncoder::~TextEncoder() = default;
TextEncoder::TextEncoder(TextEncoder&&) noexcept = default;
TextEncoder& TextEncoder::operator=(TextEncoder&&) noexcept = default;

void TextEncoder::encode(std::string_view text, Special special, std::vector<std::int32_t>& ids) {
  encode_with(state_->tokenizer.tables(), state_->encoder, text, special, ids);
}

void TextEncoder::encode(std::string_view text, std::span<const std::size_t> offsets, std::vector<std::int32_t>& ids,
                         std::vector<std::size_t>& ids_before) {
  state_->encoder.encode(text, Normalizer::Position::beginning, ids, offsets, ids_before);
}

struct StreamDecoder::State {
  State(const TextTokenizer& of, Special with) : tokenizer(of), special(with), joiner(of.tables().decoder) {}
  TextTokenizer tokenizer;  // keeps the tables alive
  Special special;
  TokenJoiner joiner;
};

StreamDecoder::StreamDecoder(const TextTokenizer& tokenizer, Special special)
    : state_(std::make_unique<State>(tokenizer, special)) {}
StreamDecoder::~StreamDecoder() = default;
StreamDecoder::StreamDecoder(StreamDecoder&&) noexcept = default;
StreamDecoder& StreamDecoder::operator=(StreamDecoder&&) noexcept = default;

std::string StreamDecoder::push(std::int32_t id) {
  std::string text;
  join(state_->tokenizer.tables(), id, state_->special, state_->joiner, text);
  return text;
}

std::string StreamDecoder::finish() {
  std::string text;
  state_->joiner.finish(text);
  return text;
}

}  // namespace tessera::io
