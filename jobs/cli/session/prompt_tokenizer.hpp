// SPDX-License-Identifier: Apache-2.0
#pragma once
// PromptTokenizer: text to token ids and back, by a tokenizer.json or one token a byte.

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "io/tokenizer/tokenizer.hpp"
#include "jobs/cli/options/options.hpp"

namespace tessera::jobs {

class PromptTokenizer {
 public:
  /// No `tokenizer`: one token a byte. `directory`: where generation_config.json or config.json name the end-of-text
  /// ids.
  PromptTokenizer(std::optional<io::TextTokenizer> tokenizer, const std::string& directory);

  /// The ids of a prompt. With `special`, BOS is added if the tokenizer adds one; a chat template writes its own.
  [[nodiscard]] std::vector<std::int32_t> encode(const std::string& text,
                                                 io::Special special = io::Special::with) const;
  /// The ids that end a generated text.
  [[nodiscard]] const std::vector<std::int32_t>& stop_ids() const { return stop_ids_; }
  /// Null: one token a byte.
  [[nodiscard]] const io::TextTokenizer* tokenizer() const { return tokenizer_ ? &*tokenizer_ : nullptr; }
  [[nodiscard]] std::string describe() const;

  /// Decodes generated ids one at a time: push returns the characters that are complete, without special tokens.
  class Stream {
   public:
    Stream(const PromptTokenizer& codec, std::span<const std::int32_t> prompt);
    [[nodiscard]] std::string push(std::int32_t id);
    /// The replacement character for one that is left incomplete.
    [[nodiscard]] std::string finish();

   private:
    [[nodiscard]] std::string take_complete();
    std::optional<io::StreamDecoder> decoder_;
    std::string bytes_;  // without a tokenizer: an incomplete character
  };

 private:
  std::optional<io::TextTokenizer> tokenizer_;
  std::vector<std::int32_t> stop_ids_;
};

/// By --tokenizer, for the model in `directory`: its tokenizer.json if there is one, else bytes (require_bytes).
/// `vocab`: of the model. Throws Error (data, usage).
[[nodiscard]] PromptTokenizer open_prompt_tokenizer(const Options& options, const std::string& directory,
                                                    std::int64_t vocab);

}  // namespace tessera::jobs
