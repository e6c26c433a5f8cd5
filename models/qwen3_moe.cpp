// SPDX-License-Identifier: Apache-2.0
// Qwen3 with experts (model_type "qwen3_moe"), and the text of Qwen3-VL with experts: Qwen3's attention, and in most
// layers a mixture of experts.
#include <algorithm>

#include "models/decoder.hpp"
#include "models/family.hpp"

namespace tessera::models {

static DecoderConfig parse_qwen3_moe(const ConfigReader& config, bool normalize) {
  DecoderConfig c = parse_decoder(config, {.windows = WindowRule{.fallback = 4096, .switched = true}});
  c.qkv_bias = c.out_bias = config.boolean("attention_bias", false);
  c.qk_norm = DecoderConfig::QkNorm::heads;
  c.experts = parse_experts(
      config, {.count = {"num_experts", "num_local_experts"},
               .weigh = normalize ? kernels::ExpertWeights::normalized : kernels::ExpertWeights::probabilities});
  c.experts.intermediate = config.integer({"moe_intermediate_size"}, 1, 4 * max_width);
  c.experts.names = {
      .router = "mlp.gate", .expert = "mlp.experts.", .gate = "gate_proj", .up = "up_proj", .down = "down_proj"};
  const std::int64_t step = config.integer({"decoder_sparse_step"}, 1, max_layers, 1);
  const std::vector<std::int64_t> dense = config.integers("mlp_only_layers", 0, c.layers - 1);
  for (std::int64_t i = 0; i < c.layers; ++i)
    if ((i + 1) % step == 0 && std::find(dense.begin(), dense.end(), i) == dense.end()) c.experts.layers.push_back(i);
  return c;
}

Model make_qwen3_moe(const ConfigReader& config, DType dtype) {
  return make_decoder(parse_qwen3_moe(config, config.boolean("norm_topk_prob", false)), dtype);
}

Model make_qwen3_vl_moe_text(const ConfigReader& config, DType dtype) {
  config.require("norm_topk_prob", true, "weights of experts that are not divided by their sum");
  DecoderConfig c = parse_qwen3_moe(config, /*normalize=*/true);
  c.experts.fused = true;
  return make_decoder(c, dtype);
}

}  // namespace tessera::models
