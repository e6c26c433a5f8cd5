// SPDX-License-Identifier: Apache-2.0
// Llama 4: the sizes of released models, how long rows may be, which layers have what, which modules have adapters.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "models/lora.hpp"
#include "runner.hpp"

namespace tessera::test::llama4 {
namespace {

using models::make;
using nlohmann::json;
using testing::HasSubstr;

json small() {
  return {{"model_type", "llama4_text"},
          {"num_hidden_layers", 4},
          {"hidden_size", 24},
          {"head_dim", 8},
          {"intermediate_size", 20},
          {"intermediate_size_mlp", 28},
          {"num_attention_heads", 6},
          {"num_key_value_heads", 2},
          {"vocab_size", 31},
          {"num_local_experts", 4},
          {"num_experts_per_tok", 1},
          {"interleave_moe_layer_step", 2},
          {"max_position_embeddings", 131072}};
}

models::Model with(const json& keys) {
  json c = small();
  c.update(keys);
  return make(c.dump(), "dir/config.json");
}

std::string error_with(const char* key, const json& value) {
  try {
    (void)with({{key, value}});
  } catch (const Error& error) { return error.line(); }
  return "accepted";
}

TEST(Llama4, ParametersOfTheReleasedModels) {
  const json released = {{"num_hidden_layers", 48},   {"hidden_size", 5120},
                         {"intermediate_size", 8192}, {"intermediate_size_mlp", 16384},
                         {"num_attention_heads", 40}, {"num_key_value_heads", 8},
                         {"vocab_size", 202048},      {"head_dim", 128}};
  json scout = released, maverick = released;
  scout.update({{"num_local_experts", 16},
                {"interleave_moe_layer_step", 1},
                {"rope_scaling",
                 {{"rope_type", "llama3"},
                  {"factor", 16.0},
                  {"low_freq_factor", 1.0},
                  {"high_freq_factor", 1.0},
                  {"original_max_position_embeddings", 8192}}}});
  maverick.update({{"num_local_experts", 128}, {"use_qk_norm", false}});
  EXPECT_EQ(with(scout).num_params(), 107'769'861'120);
  EXPECT_EQ(with(maverick).num_params(), 400'711'848'960);
}

TEST(Llama4, RowsAreNoLongerThanWhatChunksAndScaledQueriesLeaveAlone) {
  struct Case {
    json keys;
    std::int64_t tokens;
    const char* why;  // null: these are the model's positions
  };
  const json untuned = {{"attn_temperature_tuning", false}}, whole = {{"attention_chunk_size", nullptr}};
  const auto both = [](json a, const json& b) {
    a.update(b);
    return a;
  };
  const json full = {{"layer_types", std::vector<std::string>(4, "full_attention")}};
  const Case cases[] = {{json::object(), 8191, "floor_scale"},
                        {{{"attn_temperature_tuning", 4}}, 8191, "floor_scale"},
                        {{{"floor_scale", 100}}, 99, "floor_scale"},
                        {{{"attn_scale", 0.0}}, 8192, "attention_chunk_size"},
                        {{{"no_rope_layers", {1, 1, 1, 1}}}, 8192, "attention_chunk_size"},
                        {untuned, 8192, "attention_chunk_size"},
                        {both(untuned, {{"attention_chunk_size", 50}}), 50, "attention_chunk_size"},
                        {both(untuned, both(whole, full)), 131072, nullptr},
                        {both(untuned, full), 131072, nullptr},
                        {{{"max_position_embeddings", 4096}}, 4096, nullptr}};
  for (const Case& c : cases) {
    const models::Model model = with(c.keys);
    EXPECT_EQ(model.max_tokens, c.tokens) << c.keys.dump();
    if (c.why == nullptr) EXPECT_EQ(model.limit_note(), "") << c.keys.dump();
    else EXPECT_THAT(model.limit_note(), HasSubstr(c.why)) << c.keys.dump();
  }
  EXPECT_THAT(error_with("layer_types", {"full_attention", "sliding_attention", "full_attention", "full_attention"}),
              HasSubstr("\"sliding_attention\", which is not supported"));
  EXPECT_THAT(error_with("layer_types", {"full_attention"}), HasSubstr("has 1 entries"));
  json c = small();
  EXPECT_THAT(error_with("attention_chunk_size", nullptr),
              HasSubstr("\"attention_chunk_size\" is null, and some layers"));
  c.update({{"attention_chunk_size", nullptr}, {"layer_types", std::vector<std::string>(4, "chunked_attention")}});
  EXPECT_THAT(error_with("attention_chunk_size", 0), HasSubstr("\"attention_chunk_size\" is 0, not between"));
  EXPECT_THROW((void)make(c.dump(), "config"), Error);
}

TEST(Llama4, LayersWithExpertsAndWithoutRope) {
  const auto routers = [](const models::Model& model) {
    std::string layers;
    for (const ParamSpec& param : model.params)
      if (param.name.ends_with("feed_forward.router.weight")) layers += param.name[std::string("model.layers.").size()];
    return layers;
  };
  EXPECT_EQ(routers(with(json::object())), "13");
  EXPECT_EQ(routers(with({{"interleave_moe_layer_step", 1}})), "0123");
  EXPECT_EQ(routers(with({{"moe_layers", {2, 0}}})), "02");
  EXPECT_EQ(routers(with({{"moe_layers", json::array()}})), "");
  const models::Model balanced = with({{"output_router_logits", true}, {"router_aux_loss_coef", 0.5}});
  EXPECT_EQ(balanced.router.balance, 0) << "transformers' class has no balance loss";
  EXPECT_THAT(error_with("no_rope_layers", {1, 0}), HasSubstr("\"no_rope_layers\" has 2 entries"));
  EXPECT_EQ(error_with("no_rope_layers", json::array()), "accepted");
  EXPECT_THAT(error_with("head_dim", nullptr), HasSubstr("\"head_dim\" is null, which transformers does not take"));
  for (const auto& [key, value] : {std::pair<const char*, json>{"router_jitter_noise", 0.1},
                                   {"hidden_act", "gelu"},
                                   {"sliding_window", 5},
                                   {"num_experts", 4},
                                   {"rope_scaling", {{"rope_type", "yarn"}, {"factor", 2.0}}}})
    EXPECT_THAT(error_with(key, value), HasSubstr("not supported")) << key;
}

TEST(Llama4, FlopsOfTheModulesAddUpToTheFormula) {
  models::Model m = with(json::object());
  const models::BatchShape shape{3, 17};
  for (const char* trained : {"", "router", "self_attn"}) {
    for (ParamSpec& param : m.params) param.trainable = param.name.find(trained) != std::string::npos;
    double sum = 0;
    for (std::size_t i = 0; i < m.modules.size(); ++i)
      sum += m.modules[i]->forward_flops(shape) + m.modules[i]->backward_flops(shape, m.wanted(i));
    EXPECT_NEAR(sum, m.train_flops_per_token(17) * 51, 1e-12 * sum) << trained;
  }
}

TEST(Llama4, AdaptersAreOfAttentionAndDenseMlps) {
  models::Model model = with(json::object());
  models::add_lora(model, {.rank = 2});
  EXPECT_EQ(model.lora->modules.size(), 4 * (4U + 3U));
  models::Model other = with(json::object());
  try {
    models::add_lora(other, {.rank = 2, .targets = {"q_proj", "router"}});
    ADD_FAILURE();
  } catch (const Error& error) { EXPECT_THAT(error.line(), HasSubstr("\"router\" is no Linear with an adapter")); }
}

}  // namespace
}  // namespace tessera::test::llama4
