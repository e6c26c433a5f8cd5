// SPDX-License-Identifier: Apache-2.0
// Composition of the shared decoder.
#include "models/decoder.hpp"

#include <algorithm>

#include "models/attention.hpp"
#include "models/block.hpp"
#include "models/embedding.hpp"
#include "models/family.hpp"
#include "models/head.hpp"
#include "models/mlp.hpp"

namespace tessera::models {
namespace {

using Rotations = std::shared_ptr<const Rope>;

Norm make_norm(const DecoderConfig& c, const std::string& prefix, ParamList& params) {
  return Norm({.prefix = prefix,
               .channels = c.hidden,
               .eps = c.norm_eps,
               .kind = NormSpec::Kind::rms,
               .weight_offset = c.norm_offset},
              params);
}

/// A layer of the config, and what its modules share.
struct Layer {
  std::string name;  // "layers.3"
  DecoderLayer rules;
  Rotations rope;
  [[nodiscard]] std::string prefix() const { return "model." + name + "."; }
};

std::unique_ptr<Sublayer> make_attention(const DecoderConfig& c, const Layer& layer, ParamList& params) {
  const std::string prefix = layer.prefix() + "self_attn.";
  const auto linear = [&](const char* name, std::int64_t in, std::int64_t out, bool bias) {
    return LinearSpec{prefix + name, in, out, WeightOrder::out_in, bias, c.initializer_range};
  };
  const std::int64_t q = c.heads * c.head_dim, kv = c.kv_heads * c.head_dim;
  AttentionSpec spec{.heads = {.heads = c.heads, .kv_heads = c.kv_heads, .head_dim = c.head_dim, .rope = {}},
                     .qkv = {},
                     .out = linear("o_proj", q, c.hidden, c.out_bias),
                     .rules = {.scale = c.attention_scale, .window = layer.rules.window, .soft_cap = c.attention_cap}};
  if (layer.rules.rotates) spec.heads.rope = layer.rope;
  if (c.sinks)
    spec.rules.sinks = ParamSpec{
        .name = prefix + "sinks", .shape = {c.heads}, .init = {Initializer::Kind::normal, c.initializer_range}};
  if (c.fused_names) spec.qkv = {linear("qkv_proj", c.hidden, q + 2 * kv, c.qkv_bias)};
  else
    spec.qkv = {linear("q_proj", c.hidden, q, c.qkv_bias), linear("k_proj", c.hidden, kv, c.qkv_bias),
                linear("v_proj", c.hidden, kv, c.qkv_bias)};
  const bool unweighted = c.qk_norm == DecoderConfig::QkNorm::unweighted;
  if (unweighted && layer.rules.rotates) spec.heads.norms = QkNormSpec{.q = {}, .k = {}, .eps = c.norm_eps};
  else if (c.qk_norm != DecoderConfig::QkNorm::none && !unweighted)
    spec.heads.norms = QkNormSpec{prefix + "q_norm.weight", prefix + "k_norm.weight", c.norm_eps,
                                  c.qk_norm == DecoderConfig::QkNorm::joint, c.norm_offset};
  return std::make_unique<Attention>(spec, params);
}

std::unique_ptr<Sublayer> make_mlp(const DecoderConfig& c, const Layer& layer, ParamList& params) {
  const std::string prefix = layer.prefix() + c.mlp;
  const auto linear = [&](const char* name, std::int64_t in, std::int64_t out) {
    return LinearSpec{prefix + name, in, out, WeightOrder::out_in, c.mlp_bias, c.initializer_range};
  };
  MlpSpec spec{.up = {}, .down = linear("down_proj", c.intermediate, c.hidden), .gate = c.activation};
  if (c.fused_names) spec.up = {linear("gate_up_proj", c.hidden, 2 * c.intermediate)};
  else spec.up = {linear("gate_proj", c.hidden, c.intermediate), linear("up_proj", c.hidden, c.intermediate)};
  return std::make_unique<Mlp>(spec, params);
}

/// The residual branch of a sublayer, with the norms that the family has; `make` adds the sublayer's parameters.
template <class Make>
Residual make_residual(const DecoderConfig& c, const char* before, const char* after, const Layer& layer,
                       ParamList& params, const Make& make) {
  std::optional<Norm> norm, post;
  if (c.norms != DecoderConfig::Norms::after) norm = make_norm(c, layer.prefix() + before, params);
  std::unique_ptr<Sublayer> sublayer = make(c, layer, params);
  if (c.norms != DecoderConfig::Norms::before) post = make_norm(c, layer.prefix() + after, params);
  return {norm, std::move(sublayer), post};
}

BlockParts attention_block(const DecoderConfig& c, const Layer& layer, ParamList& params) {
  BlockParts block{.name = layer.name, .group = layer.name, .channels = c.hidden};
  block.residuals.push_back(
      make_residual(c, "input_layernorm", "post_attention_layernorm", layer, params, make_attention));
  return block;
}

void add_block(BlockParts block, const ParamList& params, Model& m) {
  block.params = params.indices();
  m.modules.push_back(std::make_unique<Block>(std::move(block)));
}

void add_dense_layer(const DecoderConfig& c, const Layer& layer, Model& m) {
  ParamList params(m.params);
  BlockParts block = attention_block(c, layer, params);
  const char* const before =
      c.norms == DecoderConfig::Norms::both ? "pre_feedforward_layernorm" : "post_attention_layernorm";
  block.residuals.push_back(make_residual(c, before, "post_feedforward_layernorm", layer, params, make_mlp));
  add_block(std::move(block), params, m);
}

/// Two modules, so that the experts can be a shard unit of their own.
void add_sparse_layer(const DecoderConfig& c, const Layer& layer, Model& m) {
  ParamList first(m.params);
  add_block(attention_block(c, layer, first), first, m);

  ParamList second(m.params);
  BlockParts block{.name = layer.name + ".experts", .group = layer.name, .channels = c.hidden};
  const Norm norm = make_norm(c, layer.prefix() + "post_attention_layernorm", second);
  const ExpertsLayerSpec experts{
      .prefix = layer.prefix(), .hidden = c.hidden, .std = c.initializer_range, .layer = m.router.layers++};
  block.residuals.emplace_back(norm, make_experts(c.experts, experts, second));
  add_fused_names(c.experts, experts, m.aliases);
  add_block(std::move(block), second, m);
}

void add_layers(const DecoderConfig& c, Model& m) {
  const auto rope = std::make_shared<const Rope>(c.rope),
             sliding_rope = c.sliding_rope ? std::make_shared<const Rope>(*c.sliding_rope) : rope;
  m.router.experts = c.experts.count;
  m.router.balance = c.experts.balance;
  for (std::int64_t i = 0; i < c.layers; ++i) {
    const bool sparse = std::binary_search(c.experts.layers.begin(), c.experts.layers.end(), i);
    const DecoderLayer& rules = c.layer[static_cast<std::size_t>(i)];
    (sparse ? add_sparse_layer : add_dense_layer)(
        c, {"layers." + std::to_string(i), rules, rules.slides ? sliding_rope : rope}, m);
  }
}

}  // namespace

Model make_decoder(const DecoderConfig& c, DType dtype) {
  Model m;
  m.family = c.family;
  m.hidden = c.hidden;
  m.vocab = c.vocab;
  m.max_tokens = c.max_tokens;
  m.why_max = c.why_max;
  m.packs = true;
  m.dtype = dtype;
  const std::string table = "model.embed_tokens.weight", head = "lm_head.weight";
  m.modules.push_back(std::make_unique<Embedding>(EmbeddingSpec{.tokens = table,
                                                                .positions = "",
                                                                .vocab = c.vocab,
                                                                .channels = c.hidden,
                                                                .std = c.initializer_range,
                                                                .scale = c.embedding_scale},
                                                  m.params));
  add_layers(c, m);
  m.modules.push_back(std::make_unique<Head>(HeadSpec{.norm = {.prefix = "model.norm",
                                                               .channels = c.hidden,
                                                               .eps = c.norm_eps,
                                                               .kind = NormSpec::Kind::rms,
                                                               .weight_offset = c.norm_offset},
                                                      .vocab = c.vocab,
                                                      .channels = c.hidden,
                                                      .tied_to = c.tied ? 0 : -1,
                                                      .weight = head,
                                                      .std = c.initializer_range,
                                                      .logits = c.logits,
                                                      .router = m.router.num_statistics()},
                                             m.params));
  if (c.tied) m.aliases[head] = {.parts = {}, .shape = {}, .same_as = table};
  return m;
}

std::string decoder_canonical_name(const std::string& name) {
  return name.ends_with(".rotary_emb.inv_freq") ? "" : name;  // buffers of old files
}

}  // namespace tessera::models
