#pragma once
// PromptTokenizer: text to the ids that a model reads, and back: its tokenizer.json, or bytes as they are.

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "io/tokenizer/tokenizer.hpp"
#include "jobs/cli/options/options.hpp"

namespace tessera::jobs {

class PromptTokenizer {
 public:
  /// `tokenizer` absent: one token per byte. `directory`: where generation_config.json or config.json say which ids end
  /// a text.
  PromptTokenizer(std::optional<io::TextTokenizer> tokenizer, const std::string& directory);

  /// Ids of a text to continue (with BOS, where the tokenizer adds one).
  [[nodiscard]] std::vector<std::int32_t> encode(const std::string& text) const;
  /// Ids that end a generated text.
  [[nodiscard]] const std::vector<std::int32_t>& stop_ids() const { return stop_ids_; }
  [[nodiscard]] std::string describe() const;

  /// The text that ids add to a prompt, as they come: whole characters, special tokens left out.
  class Stream {
   public:
    Stream(const PromptTokenizer& codec, std::span<const std::int32_t> prompt);
    [[nodiscard]] std::string push(std::int32_t id);
    /// What is left of a character that did not end.
    [[nodiscard]] std::string finish();

   private:
    [[nodiscard]] std::string take_whole();
    std::optional<io::StreamDecoder> decoder_;
    std::string bytes_;  // without a tokenizer: a character so far
  };

 private:
  std::optional<io::TextTokenizer> tokenizer_;
  std::vector<std::int32_t> stop_ids_;
};

/// What --tokenizer says for the model in `directory`: tokenizer.json if there is one, else bytes. Throws Error (data).
[[nodiscard]] PromptTokenizer open_prompt_tokenizer(const Options& options, const std::string& directory);

}  // namespace tessera::jobs
