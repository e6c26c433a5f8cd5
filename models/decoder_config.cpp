// SPDX-License-Identifier: Apache-2.0
// Reading of a Llama-like config.json; refuses settings that are not supported.
#include "models/decoder.hpp"
#include "runtime/base/error.hpp"

namespace tessera::models {
namespace {

void refuse_windows(const ConfigReader& config, const DecoderConfig& c, const DecoderDefaults& defaults) {
  // Qwen's configs set a window and disable it; the others have null.
  config.require("use_sliding_window", false, "attention in a sliding window");
  if (defaults.refuse_window != nullptr) {
    defaults.refuse_window(config, c.max_tokens);
  } else if (!config.has("use_sliding_window") && config.has("sliding_window") &&
             config.text("model_type").rfind("qwen", 0) != 0) {
    config.refuse("sliding_window", "is set: attention in a sliding window is not supported (only null)");
  }
  for (const std::string& type : config.texts("layer_types"))
    if (type != "full_attention")
      config.refuse("layer_types", "has \"" + type + "\", which is not supported (only \"full_attention\")");
}

void refuse_unsupported_decoder(const ConfigReader& config, const DecoderConfig& c, const DecoderDefaults& defaults) {
  const std::string activation = config.text("hidden_act", "silu");
  if (activation != "silu" && activation != "swish")  // two names of one function
    config.refuse("hidden_act", "is \"" + activation + "\", which is not supported (only \"silu\")");
  refuse_windows(config, c, defaults);
  config.require("is_encoder_decoder", false, "an encoder");
  config.require("add_cross_attention", false, "cross attention");
  for (const char* key : {"attn_logit_softcapping", "final_logit_softcapping", "embedding_multiplier",
                          "residual_multiplier", "attention_multiplier", "logits_scaling", "query_pre_attn_scalar"})
    if (config.has(key)) config.refuse(key, "is set, which is not supported");
  if (config.has("pruned_heads")) config.require("pruned_heads", nlohmann::json::object(), "pruning of heads");
}

std::int64_t parse_head_dim(const ConfigReader& config, const DecoderConfig& c, const DecoderDefaults& defaults) {
  if (config.has("head_dim") || defaults.head_dim > 0) return config.integer({"head_dim"}, 2, 4096, defaults.head_dim);
  if (c.hidden % c.heads != 0)
    config.refuse(
        "num_attention_heads",
        strfmt("is %ld, which does not divide \"hidden_size\" = %ld, and there is no \"head_dim\"", c.heads, c.hidden));
  return c.hidden / c.heads;
}

}  // namespace

DecoderConfig parse_decoder(const ConfigReader& config, const DecoderDefaults& defaults) {
  DecoderConfig c;
  c.family = config.text("model_type");
  c.vocab = config.integer({"vocab_size"}, 2, max_rows);
  c.max_tokens = config.integer({"max_position_embeddings"}, 1, max_rows);
  c.hidden = config.integer({"hidden_size"}, 1, max_width);
  c.layers = config.integer({"num_hidden_layers"}, 1, max_layers);
  c.heads = config.integer({"num_attention_heads"}, 1, max_width);
  c.kv_heads = defaults.kv_heads_required ? config.integer({"num_key_value_heads"}, 1, c.heads)
                                          : config.integer({"num_key_value_heads"}, 1, c.heads, c.heads);
  if (c.heads % c.kv_heads != 0)
    config.refuse("num_key_value_heads",
                  strfmt("is %ld, which does not divide \"num_attention_heads\" = %ld", c.kv_heads, c.heads));
  c.head_dim = parse_head_dim(config, c, defaults);
  if (c.head_dim % 2 != 0) config.refuse("head_dim", strfmt("is %ld: rotary positions take an even one", c.head_dim));
  c.intermediate = config.integer({"intermediate_size"}, 1, 4 * max_width);
  c.norm_eps = config.number("rms_norm_eps", 1e-12, 0.1, defaults.norm_eps);
  c.initializer_range = config.number("initializer_range", 0.0, 10.0, 0.02);
  c.tied = config.boolean("tie_word_embeddings", false);
  c.rope = parse_rope(config, {c.head_dim, c.max_tokens, defaults.rope_theta});
  refuse_unsupported_decoder(config, c, defaults);
  return c;
}

}  // namespace tessera::models
