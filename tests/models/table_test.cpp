// SPDX-License-Identifier: Apache-2.0
// Parameters, names, initial values and FLOPs of a config.
#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "models/module.hpp"

namespace tessera::test {
namespace {

using models::make;
using models::Model;

std::string config(int layers, int hidden, int heads) {
  return strfmt(
      R"({"model_type": "gpt2", "vocab_size": 50257, "n_positions": 1024, "n_embd": %d, "n_layer": %d, "n_head": %d})",
      hidden, layers, heads);
}

const ParamSpec& find(const Model& model, const std::string& name) {
  for (const ParamSpec& p : model.params)
    if (p.name == name) return p;
  throw std::runtime_error("no parameter " + name);
}

TEST(Table, ParametersOfTheReleasedModels) {
  EXPECT_EQ(make(config(12, 768, 12), "gpt2").num_params(), 124'439'808);
  EXPECT_EQ(make(config(24, 1024, 16), "gpt2-medium").num_params(), 354'823'168);
  EXPECT_EQ(make(config(36, 1280, 20), "gpt2-large").num_params(), 774'030'080);
  EXPECT_EQ(make(config(48, 1600, 25), "gpt2-xl").num_params(), 1'557'611'200);
}

TEST(Table, NamesAndShapesAreHuggingFaces) {
  const Model m = make(config(2, 768, 12), "two layers");
  const std::vector<std::pair<std::string, Shape>> expected = {{"wte.weight", {50257, 768}},
                                                               {"wpe.weight", {1024, 768}},
                                                               {"h.0.ln_1.weight", {768}},
                                                               {"h.0.ln_1.bias", {768}},
                                                               {"h.0.attn.c_attn.weight", {768, 2304}},
                                                               {"h.0.attn.c_attn.bias", {2304}},
                                                               {"h.0.attn.c_proj.weight", {768, 768}},
                                                               {"h.0.attn.c_proj.bias", {768}},
                                                               {"h.0.ln_2.weight", {768}},
                                                               {"h.0.ln_2.bias", {768}},
                                                               {"h.0.mlp.c_fc.weight", {768, 3072}},
                                                               {"h.0.mlp.c_fc.bias", {3072}},
                                                               {"h.0.mlp.c_proj.weight", {3072, 768}},
                                                               {"h.0.mlp.c_proj.bias", {768}}};
  ASSERT_EQ(m.params.size(), 2 + 12 * 2 + 2U);
  for (std::size_t i = 0; i < expected.size(); ++i) {
    EXPECT_EQ(m.params[i].name, expected[i].first);
    EXPECT_EQ(m.params[i].shape, expected[i].second) << m.params[i].name;
  }
  EXPECT_EQ(m.params[26].name, "ln_f.weight");
  EXPECT_EQ(m.params[27].name, "ln_f.bias");
}

TEST(Table, ModulesNameTheirParametersAndTheHeadSharesTheTokenTable) {
  const Model m = make(config(3, 64, 4), "three layers");
  std::vector<std::string> names;
  std::set<int> seen;
  for (const auto& module : m.modules) {
    names.push_back(module->name());
    for (const int p : module->params()) {
      const bool own = seen.insert(p).second;
      EXPECT_EQ(own, !(module->name() == "head" && p == 0))
          << module->name() << " " << m.params[static_cast<std::size_t>(p)].name;
    }
  }
  EXPECT_EQ(names, (std::vector<std::string>{"embed", "h.0", "h.1", "h.2", "head"}));
  EXPECT_EQ(seen.size(), m.params.size());
  EXPECT_FALSE(m.modules.front()->backward_reads_params());
  EXPECT_FALSE(m.modules.back()->forward_reads_params(models::Phase::train));
  EXPECT_EQ(m.vocab, 50257);
  EXPECT_EQ(m.max_tokens, 1024);
  EXPECT_EQ(m.hidden, 64);
}

TEST(Table, InitialValuesAndDecay) {
  const Model m = make(config(12, 768, 12), "gpt2");
  for (const ParamSpec& p : m.params) {
    const bool matrix = p.shape.rank() == 2, norm_weight = !matrix && p.name.ends_with("weight");
    EXPECT_EQ(p.decay, matrix) << p.name;
    EXPECT_TRUE(p.trainable);
    EXPECT_EQ(p.init.kind, matrix        ? Initializer::Kind::normal
                           : norm_weight ? Initializer::Kind::ones
                                         : Initializer::Kind::zeros)
        << p.name;
    const double std = p.name.ends_with("c_proj.weight") ? 0.02 / std::sqrt(24.0) : 0.02;
    EXPECT_DOUBLE_EQ(p.init.std, matrix ? std : 0.0) << p.name;
  }
  const Model wide =
      make(R"({"model_type": "gpt2", "vocab_size": 9, "n_positions": 4, "n_embd": 8, "n_layer": 2, "n_head": 1,
                              "n_inner": 5, "initializer_range": 0.5})",
           "n_inner");
  EXPECT_EQ(find(wide, "h.1.mlp.c_fc.weight").shape, (Shape{8, 5}));
  EXPECT_DOUBLE_EQ(find(wide, "wte.weight").init.std, 0.5);
  EXPECT_DOUBLE_EQ(find(wide, "h.1.mlp.c_proj.weight").init.std, 0.25);
}

TEST(Table, FlopsOfTheModulesAddUpToTheFormula) {
  const Model m = make(config(12, 768, 12), "gpt2");
  EXPECT_EQ(m.num_matmul_params(), 12LL * 12 * 768 * 768 + 50257LL * 768);
  EXPECT_EQ(m.train_terms().per_square, 12 * 12 * 768);
  for (const models::BatchShape shape :
       {models::BatchShape{4, 256}, models::BatchShape{1, 1}, models::BatchShape{3, 1024}}) {
    double sum = 0;
    for (std::size_t i = 0; i < m.modules.size(); ++i)
      sum += m.modules[i]->forward_flops(shape) + m.modules[i]->backward_flops(shape, m.wanted(i));
    const auto tokens = static_cast<double>(shape.batch * shape.tokens);
    const double formula = (6.0 * 123'532'032 + 12.0 * 12 * 768 * static_cast<double>(shape.tokens)) * tokens;
    EXPECT_DOUBLE_EQ(m.train_flops_per_token(shape.tokens) * tokens, formula);
    EXPECT_NEAR(sum, formula, 1e-12 * formula);
  }
}

TEST(Table, CanonicalNames) {
  const Model m = make(config(2, 64, 4), "names");
  EXPECT_EQ(models::canonical_name(m, "transformer.h.0.ln_1.weight"), "h.0.ln_1.weight");
  EXPECT_EQ(models::canonical_name(m, "h.0.ln_1.weight"), "h.0.ln_1.weight");
  EXPECT_EQ(models::canonical_name(m, "transformer.wte.weight"), "wte.weight");
  EXPECT_EQ(models::canonical_name(m, "h.1.attn.c_attn.bias"), "h.1.attn.c_attn.bias");
  EXPECT_EQ(models::canonical_name(m, "h.1.attn.bias"), "");
  EXPECT_EQ(models::canonical_name(m, "transformer.h.1.attn.masked_bias"), "");
  EXPECT_EQ(models::canonical_name(m, "lm_head.weight"), "");
  EXPECT_EQ(models::canonical_name(m, "score.weight"), "score.weight");  // unknown: for the reader to refuse
}

}  // namespace
}  // namespace tessera::test
