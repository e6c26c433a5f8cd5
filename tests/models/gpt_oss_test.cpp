// SPDX-License-Identifier: Apache-2.0
// gpt-oss: what its config sets and what is refused, which modules have adapters; and dynamic RoPE.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "models/experts.hpp"
#include "models/lora.hpp"
#include "runner.hpp"

namespace tessera::test::gpt_oss {
namespace {

using models::make;
using nlohmann::json;
using testing::HasSubstr;

json small(const char* family) {
  json c = {{"model_type", family},
            {"num_hidden_layers", 3},
            {"hidden_size", 24},
            {"head_dim", 8},
            {"intermediate_size", 20},
            {"num_attention_heads", 6},
            {"vocab_size", 31},
            {"num_key_value_heads", 2},
            {"max_position_embeddings", 4096},
            {"rope_scaling", {{"rope_type", "default"}}}};
  if (std::string(family) == "gpt_oss") c.update({{"num_local_experts", 4}, {"num_experts_per_tok", 2}});
  return c;
}

std::string error_of(const json& config) {
  try {
    (void)make(config.dump(), "dir/config.json");
  } catch (const Error& error) { return error.line(); }
  return "accepted";
}

std::string error_with(const char* key, const json& value) {
  json c = small("gpt_oss");
  c[key] = value;
  return error_of(c);
}

/// The loss of random weights and tokens, and its gradients.
double loss_of(const json& config, std::vector<std::vector<double>>& gradients) {
  const models::Model model = make(config.dump(), "config");
  const models::BatchShape shape{2, 9};
  Runner runner(model, shape);
  runner.randomize(4);
  const double value = runner.train(shape, random_ids(shape, 31, 1), random_ids(shape, 31, 2), 1.0);
  gradients.clear();
  for (std::size_t p = 0; p < model.params.size(); ++p) gradients.push_back(values(runner.grad(static_cast<int>(p))));
  return value;
}

TEST(DynamicRope, StretchesOnlySequencesLongerThanTheModels) {
  for (const char* family : {"llama", "qwen3", "gpt_oss"}) {
    std::vector<std::vector<double>> plain, dynamic;
    json c = small(family);
    const double loss = loss_of(c, plain);
    c["rope_scaling"] = {{"rope_type", "dynamic"}, {"factor", 4.0}};
    EXPECT_EQ(loss_of(c, dynamic), loss) << family;
    EXPECT_EQ(dynamic, plain) << family;
    c["rope_scaling"].erase("factor");
    EXPECT_THAT(error_of(c), HasSubstr("\"rope_scaling.factor\" is missing"));
  }
}

TEST(GptOss, ParametersOfTheReleasedModels) {
  for (const auto& [layers, experts, parameters] : {std::tuple{24, 32, 20'914'757'184}, {36, 128, 116'829'156'672}}) {
    json c = small("gpt_oss");
    c.update({{"num_hidden_layers", layers},
              {"num_local_experts", experts},
              {"num_experts_per_tok", 4},
              {"hidden_size", 2880},
              {"intermediate_size", 2880},
              {"num_attention_heads", 64},
              {"num_key_value_heads", 8},
              {"vocab_size", 201088}});
    c.erase("head_dim");  // 64
    EXPECT_EQ(make(c.dump(), "config").num_params(), parameters);
  }
}

TEST(GptOss, HasWhatItsConfigSays) {
  EXPECT_THAT(error_with("sliding_window", nullptr), HasSubstr("\"sliding_window\" is null"));
  EXPECT_THAT(error_with("rope_scaling", nullptr), HasSubstr("transformers takes YaRN of factor 32 then"));
  EXPECT_THAT(error_with("experts_per_token", 3), HasSubstr("\"experts_per_token\" is 3, but"));
  EXPECT_EQ(error_with("experts_per_token", 2), "accepted");
  EXPECT_THAT(error_with("swiglu_limit", 0), HasSubstr("\"swiglu_limit\" is 0, not between"));
  std::vector<std::vector<double>> gradients;
  json c = small("gpt_oss");
  const double loss = loss_of(c, gradients);
  for (const auto& [key, value] : {std::pair{"swiglu_alpha", 1.5}, {"swiglu_limit", 0.5}, {"rope_theta", 5000.0}}) {
    json other = c;
    other[key] = value;
    EXPECT_NE(loss_of(other, gradients), loss) << key;
  }
  const models::Model with = make(c.dump(), "with");
  EXPECT_EQ(models::partly_frozen_experts(with.params), "");
  c["attention_bias"] = false;
  EXPECT_EQ(make(c.dump(), "without").params.size(), with.params.size() - 3 * 4);
}

TEST(GptOss, AdaptersAreOfAttention) {
  models::Model model = make(small("gpt_oss").dump(), "gpt_oss");
  models::add_lora(model, {.rank = 2});
  EXPECT_EQ(model.lora->modules.size(), 3 * 4U);
  EXPECT_EQ(model.lora->modules.back().name, "model.layers.2.self_attn.o_proj");
  for (const char* name : {"gate_up_proj", "experts.down_proj", "router"}) {
    models::Model other = make(small("gpt_oss").dump(), "gpt_oss");
    try {
      models::add_lora(other, {.rank = 2, .targets = {"q_proj", name}});
      ADD_FAILURE() << name;
    } catch (const Error& error) {
      EXPECT_THAT(error.line(), HasSubstr("\"" + std::string(name) + "\" is no Linear with an adapter"));
      EXPECT_THAT(error.line(), HasSubstr("k_proj"));
    }
  }
}

}  // namespace
}  // namespace tessera::test::gpt_oss
