// SPDX-License-Identifier: Apache-2.0
#pragma once
// Configs of the Llama-like families: of given sizes, and a small one with all options of its family.

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>

#include "models/family.hpp"

namespace tessera::test::families {

using models::make;
using nlohmann::json;

inline json decoder(const char* family, int layers, int hidden, int inner, int heads, int kv_heads, int vocab) {
  return {{"model_type", family},       {"num_hidden_layers", layers},     {"hidden_size", hidden},
          {"intermediate_size", inner}, {"num_attention_heads", heads},    {"num_key_value_heads", kv_heads},
          {"vocab_size", vocab},        {"max_position_embeddings", 4096}, {"hidden_act", "silu"}};
}

inline std::int64_t params(json config, const json& more = json::object()) {
  config.update(more);
  return make(config.dump(), "config").num_params();
}

/// A small model of every family, with all options of the family.
inline json small(const std::string& family) {
  json c = decoder(family.c_str(), 3, 24, 20, 6, 2, 31);
  if (family == "qwen3" || family == "qwen3_moe") c["head_dim"] = 8;
  if (family == "qwen3_moe")
    c.update({{"num_experts", 4}, {"num_experts_per_tok", 2}, {"moe_intermediate_size", 10}, {"mlp_only_layers", {1}}});
  if (family == "mixtral") c.update({{"num_local_experts", 4}, {"num_experts_per_tok", 2}});
  if (family == "gpt_oss")
    c.update({{"num_local_experts", 4},
              {"num_experts_per_tok", 2},
              {"head_dim", 8},
              {"rope_scaling", {{"rope_type", "default"}}}});
  if (family.starts_with("gemma")) c.update({{"hidden_act", "gelu_pytorch_tanh"}, {"head_dim", 8}});
  return c;
}
inline constexpr const char* all[] = {"llama", "mistral", "qwen2",   "qwen3",  "qwen3_moe",   "mixtral", "phi3",
                                      "olmo2", "smollm3", "granite", "gemma2", "gemma3_text", "gpt_oss"};

}  // namespace tessera::test::families
