// SPDX-License-Identifier: Apache-2.0
// Mixtral (model_type "mixtral"): Llama's attention, and in every layer a mixture of experts whose K weights are
// divided by their sum.
#include <numeric>

#include "models/decoder.hpp"
#include "models/family.hpp"

namespace tessera::models {

Model make_mixtral(const ConfigReader& config, DType dtype) {
  DecoderConfig c = parse_decoder(config, {.norm_eps = 1e-5, .rope_theta = 1e6, .windows = WindowRule{}});
  config.require("router_jitter_noise", 0.0, "noise in the router");
  c.experts = parse_experts(config, {.count = {"num_local_experts", "num_experts"}});
  c.experts.intermediate = c.intermediate;
  c.experts.names = {
      .router = "block_sparse_moe.gate", .expert = "block_sparse_moe.experts.", .gate = "w1", .up = "w3", .down = "w2"};
  c.experts.layers.resize(static_cast<std::size_t>(c.layers));
  std::iota(c.experts.layers.begin(), c.experts.layers.end(), 0);
  return make_decoder(c, dtype);
}

}  // namespace tessera::models
