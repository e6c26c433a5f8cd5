// SPDX-License-Identifier: Apache-2.0
// Reading of a GPT-2 config.json; refuses settings that are not supported.
#include "models/gpt2.hpp"
#include "runtime/base/error.hpp"

namespace tessera::models {
namespace {

void refuse_unsupported_gpt2(const ConfigReader& config) {
  config.require("scale_attn_weights", true, "attention without its 1/sqrt(head_dim)");
  config.require("scale_attn_by_inverse_layer_idx", false, "scaling attention by the layer's index");
  config.require("reorder_and_upcast_attn", false, "reordered attention");
  config.require("add_cross_attention", false, "cross attention");
  config.require("is_encoder_decoder", false, "an encoder");
  config.require("tie_word_embeddings", true, "a GPT-2 with a head of its own");
  config.require("pruned_heads", nlohmann::json::object(), "pruning of heads");
  if (config.has("quantization_config"))
    config.refuse("quantization_config", "asks for quantized weights, which is not supported");
  const std::string activation = config.text("activation_function", "gelu_new");
  if (activation != "gelu_new" && activation != "gelu_pytorch_tanh")  // two names of one function
    config.refuse("activation_function",
                  "is \"" + activation + "\", which is not supported (only \"gelu_new\", \"gelu_pytorch_tanh\")");
}

}  // namespace

Gpt2Config parse_gpt2(const ConfigReader& config) {
  Gpt2Config c;
  c.vocab = config.integer({"vocab_size"}, 2, max_rows);
  c.max_tokens = config.integer({"n_positions", "max_position_embeddings", "n_ctx"}, 1, max_rows);
  c.hidden = config.integer({"n_embd", "hidden_size"}, 1, max_width);
  c.layers = config.integer({"n_layer", "num_hidden_layers"}, 1, max_layers);
  c.heads = config.integer({"n_head", "num_attention_heads"}, 1, c.hidden);
  c.intermediate = config.integer({"n_inner"}, 1, 4 * max_width, 4 * c.hidden);
  c.norm_eps = config.number("layer_norm_epsilon", 1e-12, 0.1, 1e-5);
  c.initializer_range = config.number("initializer_range", 0.0, 10.0, 0.02);
  if (c.hidden % c.heads != 0)
    config.refuse("n_head", strfmt("is %ld, which does not divide \"n_embd\" = %ld", c.heads, c.hidden));
  refuse_unsupported_gpt2(config);
  return c;
}

}  // namespace tessera::models
