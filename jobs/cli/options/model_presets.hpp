// SPDX-License-Identifier: Apache-2.0
#pragma once
// Built-in models for benchmarks and plans: the Hugging Face configs of released models.

#include <string>

namespace tessera::jobs {

/// The values of --shape: "gpt2|small|…".
extern const char* const model_preset_names;

/// The config.json of a model: "gpt2" (124M), "small" (6 layers, hidden size 384, 6 heads, vocabulary 256),
/// "qwen3-0.6b", … Throws Error (usage) for another name.
[[nodiscard]] std::string model_preset_config(const std::string& name);

}  // namespace tessera::jobs
