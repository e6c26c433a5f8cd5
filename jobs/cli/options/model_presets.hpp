#pragma once
// Built-in model shapes for benchmarks and plans: Hugging Face configs of released models as text.

#include <string>

namespace tessera::jobs {

/// The words that --shape takes, as the option table has them: "gpt2|small|…".
extern const char* const model_preset_names;

/// The config.json of a word: "gpt2" (124M), "small" (6 layers x 384, 6 heads, V 256), "qwen3-0.6b", "llama-3.2-1b", …
/// Throws Error (usage) for another word.
[[nodiscard]] std::string model_preset_config(const std::string& word);

}  // namespace tessera::jobs
