// The tokenizer's outside; what is behind it is not written yet and says so.

#include "io/tokenizer/tokenizer.hpp"

#include <filesystem>

namespace tessera::io {

struct TokenizerTables {};
struct TextEncoder::State {};
struct StreamDecoder::State {};

namespace {
[[noreturn]] void unfinished(const char* part) {
  throw Error(ExitCode::internal, std::string("the tokenizer's ") + part + " is not built yet");
}
}  // namespace

TextTokenizer TextTokenizer::load(const std::string&) { unfinished("load"); }
TextTokenizer TextTokenizer::parse(std::string_view, const std::string&) { unfinished("parse"); }
bool TextTokenizer::exists(const std::string& path) {
  std::error_code ignored;
  const std::filesystem::path given = path;
  return std::filesystem::is_regular_file(std::filesystem::is_directory(given, ignored) ? given / "tokenizer.json" : given, ignored);
}
std::vector<std::int32_t> TextTokenizer::encode(std::string_view, Special) const { unfinished("encode"); }
std::string TextTokenizer::decode(std::span<const std::int32_t>, Special) const { unfinished("decode"); }
std::int32_t TextTokenizer::vocab_size() const { unfinished("vocab_size"); }
std::optional<std::int32_t> TextTokenizer::bos_id() const { return bos_id_; }
std::optional<std::int32_t> TextTokenizer::eos_id() const {
  return eos_ids_.empty() ? std::nullopt : std::optional<std::int32_t>(eos_ids_.front());
}
const std::vector<std::int32_t>& TextTokenizer::eos_ids() const { return eos_ids_; }
std::optional<std::int32_t> TextTokenizer::id_of(std::string_view) const { unfinished("id_of"); }
std::string_view TextTokenizer::token(std::int32_t) const { unfinished("token"); }
bool TextTokenizer::is_special(std::int32_t) const { unfinished("is_special"); }
std::string TextTokenizer::describe() const { unfinished("describe"); }
std::uint64_t TextTokenizer::hash() const { unfinished("hash"); }

TextEncoder::TextEncoder(const TextTokenizer&) { unfinished("encoder"); }
TextEncoder::~TextEncoder() = default;
TextEncoder::TextEncoder(TextEncoder&&) noexcept = default;
TextEncoder& TextEncoder::operator=(TextEncoder&&) noexcept = default;
void TextEncoder::encode(std::string_view, Special, std::vector<std::int32_t>&) { unfinished("encoder"); }

StreamDecoder::StreamDecoder(const TextTokenizer&, Special) { unfinished("stream decoder"); }
StreamDecoder::~StreamDecoder() = default;
StreamDecoder::StreamDecoder(StreamDecoder&&) noexcept = default;
StreamDecoder& StreamDecoder::operator=(StreamDecoder&&) noexcept = default;
std::string StreamDecoder::push(std::int32_t) { unfinished("stream decoder"); }
std::string StreamDecoder::finish() { unfinished("stream decoder"); }

}  // namespace tessera::io
