// SPDX-License-Identifier: Apache-2.0
// Reading of a Llama-like config.json; refuses settings that are not supported.
#include "models/decoder.hpp"
#include "runtime/base/error.hpp"

namespace tessera::models {
namespace {

/// The window of the layers that have one; 0: none.
std::int64_t parse_window(const ConfigReader& config, const WindowRule& rule) {
  const bool given = config.has("sliding_window");
  if (rule.switched && !config.boolean("use_sliding_window", false)) return 0;
  if (config.is_null("sliding_window") || (rule.fallback == 0 && !given)) return 0;
  return config.integer({"sliding_window"}, 1, max_rows,
                        rule.fallback > 0 ? std::optional(rule.fallback) : std::nullopt);
}

void refuse_windows(const ConfigReader& config) {
  config.require("use_sliding_window", false, "attention in a sliding window");
  if (!config.has("use_sliding_window") && config.has("sliding_window"))
    config.refuse("sliding_window", "is set: attention in a sliding window is not supported (only null)");
}

/// Sets the windows of c.layer, which "layer_types" says or must not contradict.
void parse_windows(const ConfigReader& config, const WindowRule& rule, DecoderConfig& c) {
  const std::int64_t window = parse_window(config, rule);
  const std::vector<std::string> types = config.texts("layer_types");
  if (config.has("layer_types") && static_cast<std::int64_t>(types.size()) != c.layers)
    config.refuse("layer_types", strfmt("has %zu entries, and \"num_hidden_layers\" is %ld", types.size(), c.layers));
  for (std::int64_t i = 0; i < c.layers; ++i) {
    bool slides = window > 0 && (rule.layers == nullptr || rule.layers(i));
    if (!types.empty()) {
      const std::string& type = types[static_cast<std::size_t>(i)];
      const bool typed = type == "sliding_attention";
      if (!typed && type != "full_attention")
        config.refuse("layer_types", "has \"" + type + "\", which is not supported",
                      "Supported: full_attention, sliding_attention");
      if (typed && window == 0)
        config.refuse("layer_types", "has \"" + type + "\", which is not supported without a window");
      if (rule.by_type) slides = typed;
      else if (slides != typed && window < c.max_tokens)
        config.refuse("layer_types", "has \"" + type + "\", and \"sliding_window\" is of every layer in this family",
                      "Remove one of the two");
    }
    c.layer[static_cast<std::size_t>(i)].slides = slides;
    // One that is not shorter than the longest sequence masks nothing.
    c.layer[static_cast<std::size_t>(i)].window = slides && window < c.max_tokens ? window : 0;
  }
}

/// Refuses a function under `key` that is not one of the two names.
void require_activation(const ConfigReader& config, const char* key, const std::string& name,
                        const std::string& other) {
  const std::string activation = config.text(key, name);
  if (activation != name && activation != other)
    config.refuse(key, "is \"" + activation + "\", which is not supported (only \"" + name + "\")");
}

void refuse_unsupported_decoder(const ConfigReader& config, const DecoderDefaults& defaults) {
  if (defaults.gelu) require_activation(config, "hidden_activation", "gelu_pytorch_tanh", "gelu_new");
  if (defaults.gelu) require_activation(config, "hidden_act", "gelu_pytorch_tanh", "gelu_new");  // transformers: unread
  else require_activation(config, "hidden_act", "silu", "swish");
  config.require("is_encoder_decoder", false, "an encoder");
  config.require("add_cross_attention", false, "cross attention");
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

WindowRule qwen_windows(const ConfigReader& config) {
  const std::int64_t first = config.integer({"max_window_layers"}, 0, max_layers, 28);
  return {
      .fallback = 4096, .switched = true, .by_type = true, .layers = [first](std::int64_t i) { return i >= first; }};
}

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
  c.tied = config.boolean("tie_word_embeddings", defaults.tied);
  c.rope = parse_rope(config, {c.head_dim, c.max_tokens, defaults.rope_theta, defaults.rope_types,
                               defaults.partial_rope, defaults.rope_original, defaults.rope_layers});
  c.layer.resize(static_cast<std::size_t>(c.layers));
  if (!defaults.windows) refuse_windows(config);
  if (!defaults.own_layer_types) parse_windows(config, defaults.windows.value_or(WindowRule{.switched = true}), c);
  refuse_unsupported_decoder(config, defaults);
  if (defaults.gelu) c.activation = kernels::GateActivation::gelu;
  return c;
}

}  // namespace tessera::models
