// SPDX-License-Identifier: Apache-2.0
// gpt-oss (model_type "gpt_oss"): Llama's decoder with biases, a sink for each head, windows in every other layer, and
// in every layer a mixture of experts with biases and a clamped activation, whose K weights are divided by their sum.
#include <numeric>

#include "models/decoder.hpp"
#include "models/family.hpp"

namespace tessera::models {

Model make_gpt_oss(const ConfigReader& config, DType dtype) {
  if (!config.has("rope_parameters") && !config.has("rope_scaling"))
    config.refuse("rope_scaling", "is missing: transformers takes YaRN of factor 32 then",
                  "Write what it is: {\"rope_type\": \"default\"} for none");
  if (config.is_null("sliding_window"))
    config.refuse("sliding_window", "is null, which is not supported in this family");
  const WindowRule windows{.fallback = 128, .by_type = true, .layers = [](std::int64_t i) { return (i + 1) % 2 != 0; }};
  DecoderConfig c = parse_decoder(config, {.head_dim = 64, .norm_eps = 1e-5, .rope_theta = 150000, .windows = windows});
  c.qkv_bias = c.out_bias = config.boolean("attention_bias", true);
  c.sinks = true;
  c.experts = parse_experts(config, {.count = {"num_local_experts", "num_experts"}});
  (void)config.integer({"num_experts_per_tok", "experts_per_token"}, 1, c.experts.count);  // must agree
  c.experts.intermediate = c.intermediate;
  c.experts.names.router = "mlp.router";
  c.experts.fused = true;
  c.experts.limits = kernels::GateLimits{.alpha = config.number("swiglu_alpha", 1e-3, 1e3, 1.702),
                                         .limit = config.number("swiglu_limit", 1e-3, 1e6, 7.0)};
  c.experts.layers.resize(static_cast<std::size_t>(c.layers));
  std::iota(c.experts.layers.begin(), c.experts.layers.end(), 0);
  return make_decoder(c, dtype);
}

}  // namespace tessera::models
