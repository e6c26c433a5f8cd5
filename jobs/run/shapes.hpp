#pragma once
// Built-in model shapes for benchmarks and plans: Hugging Face configs as text.

#include <string>

namespace tessera::jobs {

/// "gpt2" (124M), "small" (6 layers x 384, 6 heads, V 256). Throws Error (usage) for another word.
[[nodiscard]] std::string shape_config(const std::string& word);

}  // namespace tessera::jobs
