// SPDX-License-Identifier: Apache-2.0
// SmolLM3 (model_type "smollm3"): Llama's decoder, tied, with some layers without RoPE, by default every fourth.
#include "models/decoder.hpp"
#include "models/family.hpp"
#include "runtime/base/error.hpp"

namespace tessera::models {

Model make_smollm3(const ConfigReader& config, DType dtype) {
  const std::int64_t interval = config.integer({"no_rope_layer_interval"}, 1, max_layers, 4);
  const std::vector<std::int64_t> listed = config.integers("no_rope_layers", 0, 1);  // 1: with RoPE
  const auto rotates = [&](std::int64_t i) {
    if (listed.empty()) return (i + 1) % interval != 0;
    return i < static_cast<std::int64_t>(listed.size()) && listed[static_cast<std::size_t>(i)] != 0;
  };
  DecoderConfig c = parse_decoder(
      config, {.rope_theta = 2e6,
               .tied = true,
               .windows = WindowRule{
                   .switched = true, .by_type = true, .layers = [&](std::int64_t i) { return !rotates(i); }}});
  if (!listed.empty() && static_cast<std::int64_t>(listed.size()) < c.layers)
    config.refuse("no_rope_layers",
                  strfmt("has %zu entries, and \"num_hidden_layers\" is %ld", listed.size(), c.layers));
  for (std::int64_t i = 0; i < c.layers; ++i) c.layer[static_cast<std::size_t>(i)].rotates = rotates(i);
  c.qkv_bias = c.out_bias = config.boolean("attention_bias", false);
  c.mlp_bias = config.boolean("mlp_bias", false);
  return make_decoder(c, dtype);
}

}  // namespace tessera::models
