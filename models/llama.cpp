// SPDX-License-Identifier: Apache-2.0
// Llama 3, 3.1, 3.2 (model_type "llama"): the shared decoder; biases as the config says.
#include "models/decoder.hpp"
#include "models/family.hpp"

namespace tessera::models {

Model make_llama(const ConfigReader& config, DType dtype) {
  DecoderConfig c = parse_decoder(config, {.kv_heads_required = false});
  c.qkv_bias = c.out_bias = config.boolean("attention_bias", false);
  c.mlp_bias = config.boolean("mlp_bias", false);
  return make_decoder(c, dtype);
}

}  // namespace tessera::models
