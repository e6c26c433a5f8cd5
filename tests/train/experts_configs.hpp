// SPDX-License-Identifier: Apache-2.0
#pragma once
// Small mixtures of experts whose sizes two and four ranks divide.

#include <string>

#include "runtime/base/error.hpp"

namespace tessera::test {

/// Of "mixtral" all layers have experts, and of "qwen3_moe" two of three.
inline std::string experts_like(const std::string& family, int kv_heads = 2, double balance = 0.1) {
  return strfmt(
      R"({"model_type": "%s", "vocab_size": 37, "max_position_embeddings": 16, "hidden_size": 20, "num_hidden_layers": %d,
  "num_attention_heads": 4, "num_key_value_heads": %d, "head_dim": 6, "intermediate_size": 28, "num_experts_per_tok": 2,
  "output_router_logits": %s, "router_aux_loss_coef": %g, %s})",
      family.c_str(), family == "mixtral" ? 2 : 3, kv_heads, balance > 0 ? "true" : "false", balance,
      family == "mixtral" ? R"("num_local_experts": 4)"
                          : R"("num_experts": 5, "moe_intermediate_size": 12, "mlp_only_layers": [1])");
}

/// Fused experts that weigh their inputs, and a shared one.
inline constexpr const char* llama4_config =
    R"({"model_type": "llama4_text", "vocab_size": 37, "max_position_embeddings": 16, "hidden_size": 20,
  "num_hidden_layers": 4, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 6, "intermediate_size": 12,
  "intermediate_size_mlp": 28, "num_local_experts": 4, "num_experts_per_tok": 1, "interleave_moe_layer_step": 2,
  "tie_word_embeddings": false})";

/// Sinks, windows, biases, and fused experts with a clamped activation.
inline constexpr const char* gpt_oss_config =
    R"({"model_type": "gpt_oss", "vocab_size": 37, "max_position_embeddings": 16, "hidden_size": 20,
  "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 6, "intermediate_size": 12,
  "sliding_window": 5, "num_local_experts": 4, "num_experts_per_tok": 2, "rope_scaling": {"rope_type": "default"}})";

}  // namespace tessera::test
