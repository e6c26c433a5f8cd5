// SPDX-License-Identifier: Apache-2.0
// Composition of GPT-2.
#include "models/gpt2.hpp"

#include <cmath>

#include "models/attention.hpp"
#include "models/block.hpp"
#include "models/embedding.hpp"
#include "models/family.hpp"
#include "models/head.hpp"
#include "models/mlp.hpp"

namespace tessera::models {
namespace {

std::unique_ptr<Module> make_block(const Gpt2Config& c, std::int64_t layer, std::vector<ParamSpec>& model) {
  const std::string name = "h." + std::to_string(layer);
  const double std = c.initializer_range;
  const double std_out =
      std / std::sqrt(2.0 * static_cast<double>(c.layers));  // of projections into the residual stream
  constexpr WeightOrder order = WeightOrder::in_out;         // Conv1D
  ParamList params(model);

  BlockParts block{.name = name, .group = name, .channels = c.hidden};
  const Norm norm_1({.prefix = name + ".ln_1", .channels = c.hidden, .eps = c.norm_eps}, params);
  auto attention = std::make_unique<Attention>(
      AttentionSpec{.heads = {.heads = c.heads, .kv_heads = c.heads, .head_dim = c.hidden / c.heads},
                    .qkv = {{name + ".attn.c_attn", c.hidden, 3 * c.hidden, order, /*bias=*/true, std}},
                    .out = {name + ".attn.c_proj", c.hidden, c.hidden, order, /*bias=*/true, std_out}},
      params);
  block.residuals.emplace_back(norm_1, std::move(attention));
  const Norm norm_2({.prefix = name + ".ln_2", .channels = c.hidden, .eps = c.norm_eps}, params);
  auto mlp = std::make_unique<Mlp>(
      MlpSpec{.up = {{name + ".mlp.c_fc", c.hidden, c.intermediate, order, /*bias=*/true, std}},
              .down = {name + ".mlp.c_proj", c.intermediate, c.hidden, order, /*bias=*/true, std_out}},
      params);
  block.residuals.emplace_back(norm_2, std::move(mlp));
  block.params = params.indices();
  return std::make_unique<Block>(std::move(block));
}

}  // namespace

Model make_gpt2(const Gpt2Config& c, DType dtype) {
  Model m;
  m.family = "gpt2";
  m.hidden = c.hidden;
  m.vocab = c.vocab;
  m.max_tokens = c.max_tokens;
  m.packs = true;
  m.dtype = dtype;
  m.modules.push_back(std::make_unique<Embedding>(EmbeddingSpec{.tokens = "wte.weight",
                                                                .positions = "wpe.weight",
                                                                .vocab = c.vocab,
                                                                .max_tokens = c.max_tokens,
                                                                .channels = c.hidden,
                                                                .std = c.initializer_range},
                                                  m.params));
  constexpr int token_table = 0;
  for (std::int64_t layer = 0; layer < c.layers; ++layer) m.modules.push_back(make_block(c, layer, m.params));
  m.modules.push_back(
      std::make_unique<Head>(HeadSpec{.norm = {.prefix = "ln_f", .channels = c.hidden, .eps = c.norm_eps},
                                      .vocab = c.vocab,
                                      .channels = c.hidden,
                                      .tied_to = token_table},
                             m.params));
  m.aliases["lm_head.weight"] = {.parts = {}, .shape = {}, .same_as = "wte.weight"};
  return m;
}

Model make_gpt2_model(const ConfigReader& config, DType dtype) { return make_gpt2(parse_gpt2(config), dtype); }

std::string gpt2_canonical_name(const std::string& name) {
  constexpr std::string_view prefix = "transformer.";
  const std::string canonical = name.starts_with(prefix) ? name.substr(prefix.size()) : name;
  const bool mask =
      canonical.ends_with(".attn.bias") || canonical.ends_with(".attn.masked_bias");  // buffers of old files
  return mask ? "" : canonical;
}

}  // namespace tessera::models
