// SPDX-License-Identifier: Apache-2.0
// Adapters: which modules get one, what they compute (finite differences, dropout included), what they need.
#include "models/lora.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "models/lora_config.hpp"
#include "runner.hpp"
#include "runtime/base/rng.hpp"

namespace tessera::test::lora {
namespace {

using models::BatchShape;
using models::LoraSpec;
using models::Model;

constexpr BatchShape shape{2, 5};
constexpr std::int32_t vocab = 11;

const char* const experts =
    R"({"model_type": "qwen3_moe", "vocab_size": 11, "max_position_embeddings": 16, "hidden_size": 6, "num_hidden_layers": 2,
  "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 4, "intermediate_size": 7, "moe_intermediate_size": 5, "num_experts": 4,
  "num_experts_per_tok": 2, "norm_topk_prob": true, "mlp_only_layers": [1]})";

Model adapted(const char* config, const LoraSpec& spec, DType dtype = DType::f64) {
  Model model = models::make(config, "test", dtype);
  models::add_lora(model, spec);
  return model;
}

std::vector<std::string> names(const Model& model) {
  std::vector<std::string> all;
  for (const models::AdaptedModule& module : model.lora->modules) all.push_back(module.name);
  return all;
}

std::vector<std::string> trained(const Model& model) {
  std::vector<std::string> all;
  for (const ParamSpec& param : model.params)
    if (param.trainable && !param.adapter) all.push_back(param.name);
  return all;
}

std::string refused(const char* config, const LoraSpec& spec) {
  try {
    (void)adapted(config, spec);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::usage);
    return error.line();
  }
  return "";
}

std::vector<std::int32_t> some_ids(std::uint64_t key) {
  std::vector<std::int32_t> ids;
  for (std::uint64_t i = 0; i < static_cast<std::uint64_t>(shape.batch * shape.tokens); ++i)
    ids.push_back(static_cast<std::int32_t>(uniform(key, i) * vocab));
  return ids;
}

TEST(LoraTargets, AreThoseOfPeft) {
  EXPECT_EQ(names(adapted(small_gpt2, {})),
            (std::vector<std::string>{"h.0.attn.c_attn", "h.0.attn.c_proj", "h.0.mlp.c_fc", "h.0.mlp.c_proj",
                                      "h.1.attn.c_attn", "h.1.attn.c_proj", "h.1.mlp.c_fc", "h.1.mlp.c_proj"}));
  EXPECT_EQ(names(adapted(small_llama, {})).size(), 14U);
  EXPECT_EQ(names(adapted(small_llama, {.targets = {"q_proj", "layers.1.mlp.up_proj"}})),
            (std::vector<std::string>{"model.layers.0.self_attn.q_proj", "model.layers.1.self_attn.q_proj",
                                      "model.layers.1.mlp.up_proj"}));
  // A name is whole, or follows a dot; a regular expression matches the whole name that transformers has.
  EXPECT_NE(refused(small_llama, {.targets = {"proj"}}), "");
  EXPECT_EQ(names(adapted(small_gpt2, {.regex = R"(transformer\.h\.\d+\.attn\.c_.*)"})).size(), 4U);
  EXPECT_NE(refused(small_gpt2, {.regex = "c_attn"}), "");
  // Attention and the dense layer; router and experts are not Linears by default.
  EXPECT_EQ(names(adapted(experts, {})).size(), 11U);
  EXPECT_EQ(names(adapted(experts, {.targets = {"gate"}})), std::vector<std::string>{"model.layers.0.mlp.gate"});
}

/// The projections of experts, if they are named.
TEST(LoraTargets, Experts) {
  const Model base = models::make(experts, "test", DType::f64);
  const Model model = adapted(experts, {.rank = 3, .targets = {"up_proj"}});
  EXPECT_EQ(names(model),
            (std::vector<std::string>{"model.layers.0.mlp.experts.0.up_proj", "model.layers.0.mlp.experts.1.up_proj",
                                      "model.layers.0.mlp.experts.2.up_proj", "model.layers.0.mlp.experts.3.up_proj",
                                      "model.layers.1.mlp.up_proj"}));
  // Two of the four compute a token.
  EXPECT_EQ(model.num_matmul_params() - base.num_matmul_params(), 2 * 3 * (6 + 5) + 3 * (6 + 7));
  EXPECT_EQ(names(adapted(experts, {.regex = R"(.*experts\.\d+\..*)"})).size(), 12U);
  EXPECT_EQ(trained(adapted(experts, {.regex = R"(.*experts\.\d+\.up_proj)", .modules_to_save = {"down_proj"}})).size(),
            5U);
}

TEST(LoraConfig, NullIsNoNumber) {
  const std::string rest = R"("peft_type": "LORA", "target_modules": ["q_proj"]})";
  EXPECT_EQ(models::parse_lora_config(R"({"r": 4, )" + rest, "test").alpha, 8);  // PEFT's default
  for (const char* key : {"r", "lora_alpha", "lora_dropout"}) try {
      (void)models::parse_lora_config(std::string(R"({")") + key + R"(": null, )" + rest, "test");
      ADD_FAILURE() << key;
    } catch (const Error& error) {
      EXPECT_NE(error.line().find(std::string(key) + " is null"), std::string::npos) << error.line();
    }
}

/// As names, of which PEFT with transformers 5 makes those of its fused parameters; no dense MLP has them.
TEST(LoraTargets, ExpertsInPeftsConfig) {
  const auto written = [](const LoraSpec& spec) {
    return nlohmann::json::parse(lora_config_text(adapted(experts, spec), "base"))["target_modules"];
  };
  const LoraSpec spec{.regex = R"(.*(experts\.\d+\.up_proj|q_proj))"};
  EXPECT_EQ(written(spec), (nlohmann::json{"experts.0.up_proj", "experts.1.up_proj", "experts.2.up_proj",
                                           "experts.3.up_proj", "q_proj"}));
  const LoraSpec again = models::parse_lora_config(lora_config_text(adapted(experts, spec), "base"), "test");
  EXPECT_EQ(names(adapted(experts, again)), names(adapted(experts, spec)));
  EXPECT_EQ(written({.regex = ".*up_proj"}), nlohmann::json{"up_proj"});
  EXPECT_EQ(written({.regex = ".*q_proj"}), ".*q_proj");
  EXPECT_EQ(written({.targets = {"up_proj"}}), nlohmann::json{"up_proj"});
}

/// A head, tied or not, has its name in transformers.
TEST(LoraTargets, Heads) {
  for (const char* config : {small_gpt2, small_llama}) {
    const Model model = adapted(config, {.targets = {"lm_head"}});
    EXPECT_EQ(names(model), std::vector<std::string>{"lm_head"});
    EXPECT_EQ(model.params.back().name, "lm_head.lora_B.weight");
    EXPECT_EQ(model.params.back().shape, (Shape{11, 8}));
    EXPECT_EQ(huggingface_name(model, model.params.back().name), "lm_head.lora_B.weight");
    EXPECT_EQ(names(adapted(config, {.regex = "lm_.*"})), std::vector<std::string>{"lm_head"});
  }
  EXPECT_EQ(names(adapted(small_llama, {.modules_to_save = {"lm_head"}})).size(), 14U);
}

TEST(LoraTargets, Embeddings) {
  const Model model = adapted(small_llama, {.rank = 3, .targets = {"embed_tokens", "q_proj"}});
  const ParamSpec &a = model.params[model.params.size() - 6], &b = model.params[model.params.size() - 5];
  EXPECT_EQ(a.name, "model.embed_tokens.lora_embedding_A");
  EXPECT_EQ(a.shape, (Shape{3, 11}));
  EXPECT_EQ(a.init.kind, Initializer::Kind::zeros);
  EXPECT_EQ(b.name, "model.embed_tokens.lora_embedding_B");
  EXPECT_EQ(b.shape, (Shape{6, 3}));
  EXPECT_EQ(names(adapted(small_gpt2, {.targets = {"wte"}})), std::vector<std::string>{"wte"});
  EXPECT_NE(refused(small_gpt2, {.targets = {"wpe"}}), "");
}

TEST(LoraTargets, WhatIsTrainedBesides) {
  EXPECT_EQ(trained(adapted(small_llama, {})), std::vector<std::string>{});
  EXPECT_EQ(trained(adapted(small_llama, {.modules_to_save = {"embed_tokens", "lm_head"}})),
            (std::vector<std::string>{"model.embed_tokens.weight", "lm_head.weight"}));
  EXPECT_EQ(trained(adapted(small_llama, {.targets = {"q_proj"}, .bias = LoraSpec::Bias::lora_only})),
            (std::vector<std::string>{"model.layers.0.self_attn.q_proj.bias", "model.layers.1.self_attn.q_proj.bias"}));
  EXPECT_EQ(trained(adapted(small_gpt2, {.bias = LoraSpec::Bias::all})).size(), 13U);  // LayerNorm's, too
  // A module that is saved gets no adapter.
  const Model saved = adapted(small_llama, {.modules_to_save = {"layers.0.mlp"}});
  EXPECT_EQ(saved.lora->modules.size(), 11U);
  EXPECT_EQ(trained(saved).size(), 6U);
  for (const ParamSpec& param : adapted(small_llama, {}, DType::bf16).params)
    EXPECT_EQ(param.storage_dtype, param.adapter ? DType::f32 : DType::bf16) << param.name;
}

TEST(LoraTargets, Refusals) {
  EXPECT_NE(refused(small_llama, {.rank = 0}).find("rank 0"), std::string::npos);
  EXPECT_NE(refused(small_llama, {.dropout = 1}).find("dropout 1"), std::string::npos);
  const std::string line = refused(small_llama, {.targets = {"q_proj", "c_attn"}});
  EXPECT_NE(line.find("\"c_attn\""), std::string::npos) << line;
  EXPECT_NE(line.find("down_proj, embed_tokens, gate_proj, k_proj, lm_head, o_proj, q_proj, up_proj, v_proj"),
            std::string::npos)
      << line;
  EXPECT_EQ(refused(small_llama, {.targets = {"q_proj", "c_attn"}, .strict = false}), "");
  EXPECT_NE(refused(experts, {.targets = {"experts.0.up_proj"}}).find("mlp.experts.1.up_proj"), std::string::npos);
  EXPECT_NE(refused(small_llama, {.regex = "q_proj("}).find("regular expression"), std::string::npos);
  EXPECT_NE(refused(small_llama, {.modules_to_save = {"wte"}}).find("wte"), std::string::npos);
  EXPECT_NE(refused(small_gpt2, {.modules_to_save = {"wte"}}).find("tied"), std::string::npos);
  EXPECT_EQ(refused(small_gpt2, {.modules_to_save = {"wte", "lm_head"}}), "");
  EXPECT_NE(refused(small_llama, {.targets = {"q_proj", "lm_head"}, .modules_to_save = {"lm_head"}})
                .find("lm_head is in modules_to_save too"),
            std::string::npos);
}

std::string embedding_of(const char* config) { return config == small_gpt2 ? "wte" : "embed_tokens"; }

class LoraGradients : public testing::TestWithParam<const char*> {
 protected:
  std::vector<std::int32_t> ids = some_ids(1), targets = some_ids(2);
};

TEST_P(LoraGradients, OfEveryModuleAlone) {
  for (const bool rslora : {false, true}) {
    LoraSpec spec{.rank = 3, .alpha = 4, .rslora = rslora};
    if (GetParam() == experts) spec.targets = {"q_proj", "o_proj", "gate", "gate_proj", "up_proj", "down_proj"};
    spec.targets.emplace_back("lm_head");
    spec.targets.push_back(embedding_of(GetParam()));
    Model model = adapted(GetParam(), spec);
    for (ParamSpec& param : model.params) param.trainable = true;
    Runner runner(model, shape);
    runner.randomize(3);
    for (std::size_t m = 0; m < model.modules.size(); ++m) runner.check_module(m, shape, ids, targets);
  }
}

/// The loss of a training pass, whose mask is the same each time.
TEST_P(LoraGradients, ThroughDropout) {
  const Model model =
      adapted(GetParam(),
              {.rank = 2, .alpha = 4, .dropout = 0.4, .targets = {"all-linear", "lm_head", embedding_of(GetParam())}});
  const auto gradients = [&](bool recompute, bool selective = false) {
    Runner runner(model, shape);
    runner.randomize(3);
    (void)runner.train(shape, ids, targets, 0.1, {.recompute = recompute, .selective = selective});
    std::vector<std::vector<double>> grads;
    for (const models::AdaptedModule& module : model.lora->modules)
      for (const int p : {module.a, module.b}) grads.push_back(values(runner.grad(p)));
    return grads;
  };
  const auto found = gradients(false);
  EXPECT_EQ(found, gradients(true));
  EXPECT_EQ(found, gradients(true, /*selective=*/true));
  Runner runner(model, shape);
  runner.randomize(3);
  const auto loss = [&] {
    runner.sums = {};
    return runner.train(shape, ids, targets, 0.1);
  };
  EXPECT_NE(loss(), runner.evaluate(shape, ids, targets));
  std::size_t at = 0;
  for (const models::AdaptedModule& module : model.lora->modules)
    for (const int p : {module.a, module.b}) {
      const std::vector<double>& gradient = found[at++];
      const TensorView& value = runner.param(p);
      for (std::int64_t i = 0; i < value.numel(); i += 5) {
        constexpr double h = 2e-6;  // third derivatives are large where a norm's variance is small
        const double x = get(value, i);
        set(value, i, x + h);
        const double above = loss();
        set(value, i, x - h);
        const double below = loss();
        set(value, i, x);
        const double expected = (above - below) / (2 * h);
        EXPECT_NEAR(gradient[static_cast<std::size_t>(i)], expected, 5e-8 * (1 + std::abs(expected))) << module.name;
      }
    }
}

INSTANTIATE_TEST_SUITE_P(Families, LoraGradients, testing::Values(small_gpt2, small_llama, experts));

TEST(Lora, ZeroBLeavesTheModelAsItIsAndCountsAreFormulas) {
  const Model base = models::make(small_llama, "test", DType::f64);
  const Model model = adapted(small_llama, {.rank = 3, .alpha = 12});
  EXPECT_EQ(model.num_params() - base.num_params(), model.num_matmul_params() - base.num_matmul_params());
  EXPECT_EQ(model.num_params() - base.num_params(), 2 * 3 * ((6 + 12) + 2 * (6 + 4) + (12 + 6) + 3 * (6 + 7)));
  Runner a(base, shape), b(model, shape);
  a.randomize(3);
  b.randomize(3);
  for (const models::AdaptedModule& module : model.lora->modules) {
    const TensorView& zero = b.param(module.b);
    for (std::int64_t i = 0; i < zero.numel(); ++i) set(zero, i, 0);
    EXPECT_EQ(model.params[static_cast<std::size_t>(module.b)].init.kind, Initializer::Kind::zeros);
  }
  const auto ids = some_ids(1), targets = some_ids(2);
  EXPECT_EQ(a.evaluate(shape, ids, targets), b.evaluate(shape, ids, targets));
  for (std::size_t m = 1; m + 1 < model.modules.size(); ++m) {
    const double more = model.modules[m]->forward_flops(shape) - base.modules[m]->forward_flops(shape);
    EXPECT_DOUBLE_EQ(more, 2.0 * 10 * 3 * ((6 + 12) + 2 * (6 + 4) + (12 + 6) + 3 * (6 + 7)));
    // Frozen weights: one GEMM each for dx, two for the adapters; in the first block there is no dx for q, k, v.
    EXPECT_LT(model.modules[m]->backward_flops(shape, model.wanted(m)), 2 * model.modules[m]->forward_flops(shape));
    EXPECT_EQ(model.modules[m]->saved_bytes(shape, DType::f32), base.modules[m]->saved_bytes(shape, DType::f32));
  }
}

}  // namespace
}  // namespace tessera::test::lora
