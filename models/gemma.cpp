// SPDX-License-Identifier: Apache-2.0
// Gemma 2 (model_type "gemma2") and the text models of Gemma 3 ("gemma3_text"): norms before and after attention and
// MLP with weights 1 + w, GeGLU, embeddings times √H, windows in some layers. Gemma 2 has soft caps of scores and
// logits, Gemma 3 norms of the heads of q and k, and other RoPE frequencies in the layers with a window.
#include <cmath>

#include "models/decoder.hpp"
#include "models/family.hpp"
#include "runtime/base/half.hpp"

namespace tessera::models {
namespace {

/// √H as transformers multiplies by it: rounded to the type of the weights.
double embedding_scale(std::int64_t hidden, DType dtype) {
  const double root = std::sqrt(static_cast<double>(hidden));
  if (dtype == DType::bf16) return static_cast<float>(bf16(static_cast<float>(root)));
  if (dtype == DType::f16) return static_cast<float>(f16(static_cast<float>(root)));
  return static_cast<float>(root);
}

/// A soft cap; 0: none.
double soft_cap(const ConfigReader& config, const char* name, double fallback) {
  if (config.is_null(name) || (fallback == 0 && !config.has(name))) return 0;
  return config.number(name, 1e-3, 1e6, fallback);
}

DecoderConfig parse_gemma(const ConfigReader& config, DecoderDefaults defaults, DType dtype) {
  if (config.is_null("sliding_window"))
    config.refuse("sliding_window", "is null, which is not supported in this family");
  config.require("use_bidirectional_attention", false, "attention to later tokens");
  defaults.head_dim = 256;
  defaults.tied = defaults.gelu = true;
  DecoderConfig c = parse_decoder(config, defaults);
  c.qkv_bias = c.out_bias = config.boolean("attention_bias", false);
  c.norms = DecoderConfig::Norms::both;
  c.norm_offset = 1;
  c.embedding_scale = embedding_scale(c.hidden, dtype);
  c.attention_scale = 1 / std::sqrt(static_cast<double>(config.integer({"query_pre_attn_scalar"}, 1, max_width, 256)));
  return c;
}

}  // namespace

Model make_gemma2(const ConfigReader& config, DType dtype) {
  const WindowRule windows{
      .fallback = 4096, .by_type = true, .layers = [](std::int64_t i) { return (i + 1) % 2 != 0; }};
  DecoderConfig c = parse_gemma(config, {.windows = windows}, dtype);
  c.attention_cap = soft_cap(config, "attn_logit_softcapping", 50);
  c.logits.soft_cap = soft_cap(config, "final_logit_softcapping", 30);
  return make_decoder(c, dtype);
}

Model make_gemma3_text(const ConfigReader& config, DType dtype) {
  const std::int64_t pattern = config.integer({"sliding_window_pattern"}, 1, max_layers, 6);
  const WindowRule windows{
      .fallback = 4096, .by_type = true, .layers = [pattern](std::int64_t i) { return (i + 1) % pattern != 0; }};
  DecoderConfig c =
      parse_gemma(config, {.rope_theta = 1e6, .rope_layers = "full_attention", .windows = windows}, dtype);
  c.sliding_rope = parse_rope(config, {.head_dim = c.head_dim,
                                       .max_tokens = c.max_tokens,
                                       .layers = "sliding_attention",
                                       .theta_key = "rope_local_base_freq",
                                       .scaled = false});
  c.qk_norm = DecoderConfig::QkNorm::heads;
  c.logits.soft_cap = soft_cap(config, "final_logit_softcapping", 0);
  return make_decoder(c, dtype);
}

}  // namespace tessera::models
