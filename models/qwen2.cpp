// SPDX-License-Identifier: Apache-2.0
// Qwen2 and Qwen2.5 (model_type "qwen2"): q, k, v have biases, without a key for them.
#include "models/decoder.hpp"
#include "models/family.hpp"

namespace tessera::models {

Model make_qwen2(const ConfigReader& config, DType dtype) {
  DecoderConfig c = parse_decoder(config, {.windows = qwen_windows(config)});
  c.qkv_bias = true;
  return make_decoder(c, dtype);
}

}  // namespace tessera::models
