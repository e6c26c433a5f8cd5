// SPDX-License-Identifier: Apache-2.0
// Llama 4 (model_type "llama4_text"): Llama's decoder with interleaved RoPE, most layers of which rotate;
// those norm each head of q and k, without weights. In some layers or all, experts weigh their input by a sigmoid, and
// a shared one stands beside them. Layers with RoPE attend in chunks, and those without scale queries by position: both
// change nothing in rows no longer than a chunk and shorter than "floor_scale", and longer ones are refused.
#include <algorithm>

#include "models/decoder.hpp"
#include "models/family.hpp"
#include "runtime/base/error.hpp"

namespace tessera::models {
namespace {

std::vector<bool> rotating_layers(const ConfigReader& config, std::int64_t layers) {
  const std::int64_t interval = config.integer({"no_rope_layer_interval"}, 1, max_layers, 4);
  const std::vector<std::int64_t> listed = config.integers("no_rope_layers", 0, 1);  // 1: with RoPE
  const auto count = static_cast<std::int64_t>(listed.size());
  if (!listed.empty() && count < layers)
    config.refuse("no_rope_layers", strfmt("has %ld entries, and \"num_hidden_layers\" is %ld", count, layers));
  std::vector<bool> rotate;
  for (std::int64_t i = 0; i < layers; ++i)
    rotate.push_back(listed.empty() ? (i + 1) % interval != 0 : listed[static_cast<std::size_t>(i)] != 0);
  return rotate;
}

std::vector<std::int64_t> expert_layers(const ConfigReader& config, std::int64_t layers) {
  const std::int64_t step = config.integer({"interleave_moe_layer_step"}, 1, max_layers, 1);
  std::vector<std::int64_t> with = config.integers("moe_layers", 0, max_layers);
  if (!config.has("moe_layers"))
    for (std::int64_t i = step - 1; i < layers; i += step) with.push_back(i);
  std::ranges::sort(with);
  const auto repeated = std::ranges::unique(with);
  with.erase(repeated.begin(), with.end());
  std::erase_if(with, [&](std::int64_t i) { return i >= layers; });
  return with;
}

/// Whether a layer attends in chunks.
bool has_chunks(const ConfigReader& config, const DecoderConfig& c) {
  const std::vector<std::string> types = config.texts("layer_types");
  const bool typed = config.has("layer_types");
  if (typed && static_cast<std::int64_t>(types.size()) != c.layers)
    config.refuse("layer_types", strfmt("has %zu entries, and \"num_hidden_layers\" is %ld", types.size(), c.layers));
  for (const std::string& type : types)
    if (type != "full_attention" && type != "chunked_attention")
      config.refuse("layer_types", "has \"" + type + "\", which is not supported",
                    "Supported: full_attention, chunked_attention");
  const bool some = typed ? std::ranges::find(types, "chunked_attention") != types.end()
                          : std::ranges::any_of(c.layer, &DecoderLayer::rotates);
  if (some && config.is_null("attention_chunk_size"))
    config.refuse("attention_chunk_size", "is null, and some layers attend in chunks",
                  "Write their length, or give \"layer_types\" that are all \"full_attention\"");
  return some;
}

/// Whether layers without RoPE scale queries. Released configs have a number there.
bool tunes_temperature(const ConfigReader& config) {
  constexpr const char* key = "attn_temperature_tuning";
  if (config.has(key) && config.json().at(key).is_number()) return config.number(key, 0, 1e6, 0.0) != 0;
  return config.boolean(key, true);
}

/// Lowers c.max_tokens to what rows may have so that neither chunks nor the scale of queries change them.
void limit_rows(const ConfigReader& config, DecoderConfig& c) {
  const std::int64_t chunk = config.integer({"attention_chunk_size"}, 1, max_rows, 8192);
  if (has_chunks(config, c) && chunk < c.max_tokens) {
    c.max_tokens = chunk;
    c.why_max = "longer rows attend in chunks of \"attention_chunk_size\"";
  }
  // The factor is 1 + attn_scale · log(1 + ⌊(position + 1) / floor_scale⌋).
  const std::int64_t floor_scale = config.integer({"floor_scale"}, 2, max_rows, 8192);
  const double strength = config.number("attn_scale", -1e6, 1e6, 0.1);
  const bool tuned = tunes_temperature(config) && strength != 0;
  const bool some = !std::ranges::all_of(c.layer, &DecoderLayer::rotates);
  if (tuned && some && floor_scale - 1 < c.max_tokens) {
    c.max_tokens = floor_scale - 1;
    c.why_max = "queries of longer rows are scaled by their position (\"floor_scale\")";
  }
}

}  // namespace

Model make_llama4_text(const ConfigReader& config, DType dtype) {
  DecoderConfig c = parse_decoder(config, {.head_dim = 128,
                                           .norm_eps = 1e-5,
                                           .rope_theta = 500000,
                                           .rope_types = {"default", "linear", "dynamic", "llama3"},
                                           .own_layer_types = true});
  c.rope.pairs = kernels::RotaryPairs::interleaved;
  c.qkv_bias = c.out_bias = config.boolean("attention_bias", false);
  if (config.boolean("use_qk_norm", true)) c.qk_norm = DecoderConfig::QkNorm::unweighted;
  const std::vector<bool> rotate = rotating_layers(config, c.layers);
  for (std::size_t i = 0; i < c.layer.size(); ++i) c.layer[i].rotates = rotate[i];
  limit_rows(config, c);
  c.mlp = "feed_forward.";
  c.experts = parse_experts(config, {.count = {"num_local_experts"}, .weigh = kernels::ExpertWeights::sigmoids});
  config.require("router_jitter_noise", 0.0, "noise in the router");
  c.experts.balance = 0;  // transformers' class has no balance loss
  c.experts.weighs_inputs = c.experts.fused = true;
  c.experts.names.router = "feed_forward.router";
  c.experts.names.expert = "feed_forward.experts.";
  c.experts.shared = "feed_forward.shared_expert.";
  c.experts.intermediate = c.intermediate;
  c.experts.layers = expert_layers(config, c.layers);
  c.intermediate = config.integer({"intermediate_size_mlp"}, 1, 4 * max_width, 16384);
  return make_decoder(c, dtype);
}

}  // namespace tessera::models
