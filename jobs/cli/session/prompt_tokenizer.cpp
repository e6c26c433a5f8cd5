// SPDX-License-Identifier: Apache-2.0
#include "jobs/cli/session/prompt_tokenizer.hpp"

#include "io/tokenizer/document_ids.hpp"
#include "io/tokenizer/utf8.hpp"
#include "jobs/cli/session/tokenized_data.hpp"

namespace tessera::jobs {

PromptTokenizer::PromptTokenizer(std::optional<io::TextTokenizer> tokenizer, const std::string& directory)
    : tokenizer_(std::move(tokenizer)) {
  if (tokenizer_) stop_ids_ = tokenizer_->eos_ids();
  else if (!directory.empty())
    stop_ids_ = io::read_document_ids(directory, [](std::string_view) { return std::optional<std::int32_t>(); }).eos;
}

std::vector<std::int32_t> PromptTokenizer::encode(const std::string& text, io::Special special) const {
  if (tokenizer_) return tokenizer_->encode(text, special);
  std::vector<std::int32_t> ids;
  for (const char c : text) ids.push_back(static_cast<unsigned char>(c));
  return ids;
}

std::string PromptTokenizer::describe() const { return tokenizer_ ? tokenizer_->describe() : "bytes as tokens"; }

PromptTokenizer::Stream::Stream(const PromptTokenizer& codec, std::span<const std::int32_t> prompt) {
  if (codec.tokenizer_) decoder_.emplace(*codec.tokenizer_, io::Special::without);
  for (const std::int32_t id : prompt) (void)push(id);
}

std::string PromptTokenizer::Stream::push(std::int32_t id) {
  if (decoder_) return decoder_->push(id);
  if (id >= 0 && id < 256) bytes_ += static_cast<char>(id);
  return take_complete();
}

std::string PromptTokenizer::Stream::take_complete() {
  std::string out;
  while (!bytes_.empty()) {
    const io::utf8::Step step = io::utf8::step(bytes_);
    if (step.open) break;
    out += step.valid ? bytes_.substr(0, static_cast<std::size_t>(step.length)) : "\uFFFD";
    bytes_.erase(0, static_cast<std::size_t>(step.length));
  }
  return out;
}

std::string PromptTokenizer::Stream::finish() {
  if (decoder_) return decoder_->finish();
  const bool open = !bytes_.empty();
  bytes_.clear();
  return open ? "\uFFFD" : "";
}

PromptTokenizer open_prompt_tokenizer(const Options& options, const std::string& directory, std::int64_t vocab) {
  const std::shared_ptr<const io::TextTokenizer> tokenizer = read_tokenizer(options, directory);
  if (tokenizer == nullptr) require_bytes(options, directory, vocab);
  return PromptTokenizer(tokenizer == nullptr ? std::nullopt : std::optional(*tokenizer), directory);
}

}  // namespace tessera::jobs
