// SPDX-License-Identifier: Apache-2.0
// Mistral (model_type "mistral") without a sliding window: Llama's decoder, never with biases.
#include "models/decoder.hpp"
#include "models/family.hpp"

namespace tessera::models {

namespace {

constexpr std::int64_t default_window = 4096;  // transformers' MistralConfig, where the key is absent

/// A window that is not shorter than the longest sequence masks nothing.
void refuse_window(const ConfigReader& config, std::int64_t max_tokens) {
  if (config.is_null("sliding_window")) return;
  if (config.integer({"sliding_window"}, 1, max_rows, default_window) >= max_tokens) return;
  if (config.has("sliding_window"))
    config.refuse("sliding_window", "is set: attention in a sliding window is not supported (only null)");
  config.refuse("sliding_window", "is missing, and transformers takes that for 4096, which is not supported",
                "If the model was trained without a window, write \"sliding_window\": null");
}

}  // namespace

Model make_mistral(const ConfigReader& config, DType dtype) {
  config.require("attention_bias", false, "a bias in attention");
  config.require("mlp_bias", false, "a bias in the MLP");
  const DecoderConfig c = parse_decoder(config, {.refuse_window = refuse_window});
  return make_decoder(c, dtype);
}

}  // namespace tessera::models
