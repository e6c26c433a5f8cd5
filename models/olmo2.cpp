// SPDX-License-Identifier: Apache-2.0
// OLMo 2 (model_type "olmo2"): norms after attention and MLP, and one over all heads of q, and of k.
#include "models/decoder.hpp"
#include "models/family.hpp"

namespace tessera::models {

Model make_olmo2(const ConfigReader& config, DType dtype) {
  DecoderConfig c = parse_decoder(config, {.kv_heads_required = false, .norm_eps = 1e-5});
  c.qkv_bias = c.out_bias = config.boolean("attention_bias", false);
  c.qk_norm = DecoderConfig::QkNorm::joint;
  c.norms = DecoderConfig::Norms::after;
  return make_decoder(c, dtype);
}

}  // namespace tessera::models
