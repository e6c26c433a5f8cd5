// SPDX-License-Identifier: Apache-2.0
// Mistral (model_type "mistral"): Llama's decoder, never with biases; v0.1 attends in a window, in every layer.
#include "models/decoder.hpp"
#include "models/family.hpp"

namespace tessera::models {

Model make_mistral(const ConfigReader& config, DType dtype) {
  config.require("attention_bias", false, "a bias in attention");
  config.require("mlp_bias", false, "a bias in the MLP");
  return make_decoder(parse_decoder(config, {.windows = WindowRule{.fallback = 4096}}), dtype);
}

}  // namespace tessera::models
