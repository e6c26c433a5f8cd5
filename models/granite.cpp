// SPDX-License-Identifier: Apache-2.0
// Granite 3 (model_type "granite"): Llama's decoder with four factors: of embeddings, of scores, of what a residual
// branch adds, and a divisor of logits.
#include "models/decoder.hpp"
#include "models/family.hpp"

namespace tessera::models {

Model make_granite(const ConfigReader& config, DType dtype) {
  const auto factor = [&](const char* name) { return config.number(name, 1e-6, 1e6, 1.0); };
  DecoderConfig c = parse_decoder(config, {.kv_heads_required = false});
  c.qkv_bias = c.out_bias = config.boolean("attention_bias", false);
  c.mlp_bias = config.boolean("mlp_bias", false);
  // With x + r·f(norm(x)) the decoder's activations are x / r: a residual branch adds without a factor, and
  // norm(x; eps) = norm(x / r; eps / r²).
  const double r = factor("residual_multiplier");
  c.norm_eps /= r * r;
  c.embedding_scale = factor("embedding_multiplier") / r;
  c.attention_scale = factor("attention_multiplier");
  c.logits.scale = 1 / factor("logits_scaling");
  return make_decoder(c, dtype);
}

}  // namespace tessera::models
