// SPDX-License-Identifier: Apache-2.0
// Qwen3, dense (model_type "qwen3"): qk-norm; head_dim is 128 whatever the width.
#include "models/decoder.hpp"
#include "models/family.hpp"

namespace tessera::models {

Model make_qwen3(const ConfigReader& config, DType dtype) {
  DecoderConfig c = parse_decoder(config, {.head_dim = 128, .windows = qwen_windows(config)});
  c.qkv_bias = c.out_bias = config.boolean("attention_bias", false);
  c.qk_norm = DecoderConfig::QkNorm::heads;
  return make_decoder(c, dtype);
}

}  // namespace tessera::models
