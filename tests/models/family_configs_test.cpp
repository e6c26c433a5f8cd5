// SPDX-License-Identifier: Apache-2.0
// What configs of the Llama-like families set, and what is refused: windows, frequencies, spellings, missing keys.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "models/module.hpp"
#include "runner.hpp"
#include "tests/models/small_families.hpp"

namespace tessera::test::families {
namespace {

using testing::HasSubstr;

std::string error_of(const json& config) {
  try {
    (void)make(config.dump(), "dir/config.json");
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ExitCode::usage);
    return e.line();
  }
  return "accepted";
}

std::string error_with(const char* family, const std::string& key, const json& value) {
  json c = small(family);
  c[key] = value;
  return error_of(c);
}

TEST(Families, RefuseWhatWouldChangeTheMathematicsByKey) {
  struct Setting {
    const char* key;
    json value;
    std::vector<std::string> families;  // that have it
  };
  const std::vector<Setting> settings = {{"hidden_act", "gelu", {}},
                                         {"layer_types",
                                          {"full_attention", "sliding_attention", "full_attention"},
                                          {"mistral", "gemma2", "gemma3_text", "gpt_oss"}},  // of 4096 positions
                                         {"layer_types", {"full_attention", "chunked_attention", "full_attention"}, {}},
                                         {"partial_rotary_factor", 0.5, {"phi3"}},
                                         {"quantization_config", {{"bits", 4}}, {}},
                                         {"final_logit_softcapping", 30.0, {"gemma2", "gemma3_text"}},
                                         {"attn_logit_softcapping", 30.0, {"gemma2"}},
                                         {"query_pre_attn_scalar", 30, {"gemma2", "gemma3_text"}},
                                         {"attention_multiplier", 0.1, {"granite"}},
                                         {"embedding_multiplier", 12.0, {"granite"}},
                                         {"residual_multiplier", 0.2, {"granite"}},
                                         {"logits_scaling", 8.0, {"granite"}},
                                         {"rope_local_base_freq", 5000.0, {"gemma3_text"}},
                                         {"sliding_window_pattern", 2, {"gemma3_text"}},
                                         {"use_bidirectional_attention", true, {}},
                                         {"hidden_activation", "gelu", {}},
                                         {"swiglu_limit", 5.0, {"gpt_oss"}},
                                         {"no_rope_layers", {1, 1, 0}, {"smollm3"}},
                                         {"decoder_sparse_step", 2, {"qwen3_moe"}},
                                         {"scale_attn_by_inverse_layer_idx", true, {}},
                                         {"is_encoder_decoder", true, {}}};
  const std::string act = "hidden_act";
  const std::set<std::string> nullable = {"layer_types", "final_logit_softcapping", "attn_logit_softcapping",
                                          "no_rope_layers"};
  for (const char* family : all) {
    for (const auto& [key, value, having] : settings) {
      const bool has = std::ranges::find(having, family) != having.end();
      if (has) {
        EXPECT_EQ(error_with(family, key, value), "accepted") << family << " " << key;
      } else {
        EXPECT_THAT(error_with(family, key, value), HasSubstr("\"" + std::string(key) + "\"")) << family;
        EXPECT_THAT(error_with(family, key, value), HasSubstr("not supported")) << family << " " << key;
      }
      const bool gemma = std::string_view(family).starts_with("gemma"),
                 read = has || (key == act && !gemma) || (key == std::string_view("hidden_activation") && gemma);
      EXPECT_EQ(error_with(family, key, nullptr) == "accepted", !read || nullable.contains(key))
          << family << " " << key;
    }
    for (const char* type : {"ntk", "mrope"})
      EXPECT_THAT(error_with(family, "rope_scaling", {{"rope_type", type}, {"factor", 2.0}}),
                  HasSubstr("\"rope_scaling.rope_type\" is \"" + std::string(type) + "\", which is not supported"));
    EXPECT_THAT(error_with(family, "rope_scaling", {{"rope_type", "longrope"}}),
                HasSubstr("\"rope_scaling.short_factor\" is missing"));
    EXPECT_THAT(error_with(family, "rope_scaling", {{"rope_type", "default"}, {"mrope_section", {1, 1}}}),
                HasSubstr("\"rope_scaling.mrope_section\" is set, which is not supported"));
    EXPECT_EQ(error_with(family, "an_unknown_key", 3), "accepted");  // and named in a warning
  }
  for (const char* method : {"gptq", "awq", "compressed-tensors", "hqq"}) {
    const std::string line = error_with("qwen2", "quantization_config", {{"quant_method", method}, {"bits", 4}});
    EXPECT_THAT(line, HasSubstr("\"quantization_config\" has quant_method " + std::string(method)));
    EXPECT_THAT(line, HasSubstr("Give the model in bf16, and quantize it here with --quant_method bnb"));
  }
  EXPECT_THAT(error_with("llama", "rope_scaling", {{"type", "su"}}),
              HasSubstr("Supported: default, linear, dynamic, llama3"));
  EXPECT_THAT(error_with("phi3", "rope_scaling", {{"type", "yarn"}}), HasSubstr("Supported: default, longrope, su"));
  EXPECT_THAT(error_with("llama", "sliding_window", 4096), HasSubstr("\"sliding_window\" is set"));
  EXPECT_THAT(error_with("llama", "use_sliding_window", true), HasSubstr("a sliding window is not supported"));
  EXPECT_THAT(error_with("mixtral", "router_jitter_noise", 0.1), HasSubstr("noise in the router is not supported"));
}

TEST(Families, LongRopeIsReadAsTransformersDoes) {
  json c = small("phi3");
  c.update({{"original_max_position_embeddings", 1024},
            {"rope_scaling", {{"type", "su"}, {"short_factor", {1.0, 2.0}}, {"long_factor", {3.0, 4.0}}}}});
  EXPECT_EQ(error_of(c), "accepted");
  c["rope_scaling"]["original_max_position_embeddings"] = 1000;
  EXPECT_THAT(error_of(c), HasSubstr("is 1000, but that of the config is 1024"));
  c["rope_scaling"].erase("original_max_position_embeddings");
  c["rope_scaling"]["long_factor"] = {3.0};
  EXPECT_THAT(error_of(c), HasSubstr("\"rope_scaling.long_factor\" has 1 numbers, expected 2"));
  c["rope_scaling"]["long_factor"] = {3.0, 0};
  EXPECT_THAT(error_of(c), HasSubstr("\"rope_scaling.long_factor\" has 0, not between"));
  EXPECT_THAT(error_with("phi3", "partial_rotary_factor", 0.3), HasSubstr("1 numbers would be rotated"));
  c.erase("original_max_position_embeddings");
  c["rope_scaling"].update({{"long_factor", {3.0, 4.0}}, {"original_max_position_embeddings", 1024}});
  EXPECT_THAT(error_of(c), HasSubstr("is 1024, but that of the config is 4096, which transformers takes"));
  c = small("llama");
  c.update({{"original_max_position_embeddings", 8},
            {"rope_scaling", {{"type", "yarn"}, {"factor", 2.0}, {"original_max_position_embeddings", 16}}}});
  EXPECT_THAT(error_of(c), HasSubstr("is 16, but that of the config is 8"));
}

/// The windows of the layers of a small model with these keys; 0: none.
std::vector<std::int64_t> windows_with(const char* family, const json& more) {
  json config = small(family);
  config.update(more);
  const models::Model model = make(config.dump(), "config");
  std::vector<std::int64_t> windows;
  constexpr std::int64_t long_row = 1 << 20;
  for (std::size_t i = 1; i + 1 < model.modules.size(); ++i) {
    if (model.modules[i]->name().ends_with(".experts")) continue;
    // Attention's FLOPs per token are those of its window.
    const auto per_token = [&](std::int64_t tokens) {
      return model.modules[i]->forward_flops({1, tokens}) / static_cast<double>(tokens);
    };
    const double square = per_token(2) - per_token(1), keys = (per_token(long_row) - per_token(1)) / square + 1;
    windows.push_back(keys == long_row ? 0 : std::llround(keys));
  }
  return windows;
}

TEST(Families, WindowsOfTheLayers) {
  using List = std::vector<std::int64_t>;
  const List none = {0, 0, 0};
  const auto with = windows_with;
  // Of 4096 positions: a window that is not shorter masks nothing.
  for (const json& window : {json(nullptr), json(4096), json(5000)})
    EXPECT_EQ(with("mistral", {{"sliding_window", window}}), none) << window;
  EXPECT_EQ(with("mistral", json::object()), none);  // 4096, where the key is absent
  EXPECT_EQ(with("mistral", {{"max_position_embeddings", 4097}}), (List{4096, 4096, 4096}));
  EXPECT_EQ(with("mistral", {{"sliding_window", 7}}), (List{7, 7, 7}));
  EXPECT_EQ(with("mixtral", {{"sliding_window", 7}}), (List{7, 7, 7}));
  EXPECT_EQ(with("mixtral", {{"max_position_embeddings", 9000}}), none);
  EXPECT_EQ(with("qwen3_moe", {{"sliding_window", 7}}), none);
  EXPECT_EQ(with("qwen3_moe", {{"sliding_window", 7}, {"use_sliding_window", true}}), (List{7, 7, 7}));
  for (const char* qwen : {"qwen2", "qwen3"}) {
    json more = {{"sliding_window", 7}, {"max_window_layers", 1}};
    EXPECT_EQ(with(qwen, more), none);
    more["use_sliding_window"] = true;
    EXPECT_EQ(with(qwen, more), (List{0, 7, 7}));
    more["layer_types"] = {"sliding_attention", "full_attention", "sliding_attention"};
    EXPECT_EQ(with(qwen, more), (List{7, 0, 7}));
    more.erase("max_window_layers");
    more["layer_types"] = nullptr;
    EXPECT_EQ(with(qwen, more), none);  // from layer 28 on
  }
  for (const json& window : {json(4096), json(5000)}) EXPECT_EQ(with("gemma2", {{"sliding_window", window}}), none);
  EXPECT_EQ(with("gemma2", {{"sliding_window", 7}}), (List{7, 0, 7}));
  EXPECT_EQ(with("gemma2", {{"max_position_embeddings", 4097}}), (List{4096, 0, 4096}));
  EXPECT_EQ(with("gemma3_text", {{"sliding_window", 7}}), (List{7, 7, 7}));  // all but every sixth
  EXPECT_EQ(with("gemma3_text", {{"sliding_window", 7}, {"sliding_window_pattern", 3}}), (List{7, 7, 0}));
  EXPECT_EQ(with("gemma3_text",
                 {{"sliding_window", 7}, {"layer_types", {"full_attention", "sliding_attention", "full_attention"}}}),
            (List{0, 7, 0}));
  EXPECT_EQ(with("gpt_oss", {{"sliding_window", 7}}), (List{7, 0, 7}));
  EXPECT_THAT(error_with("qwen2", "layer_types", {"full_attention"}), HasSubstr("\"layer_types\" has 1 entries"));
  json all_full = small("mistral");
  all_full.update({{"sliding_window", 7}, {"layer_types", {"full_attention", "full_attention", "full_attention"}}});
  EXPECT_THAT(error_of(all_full), HasSubstr("is of every layer in this family"));
}

TEST(Families, FlopsOfAWindowAreThoseOfItsKeys) {
  json c = small("qwen3");
  const models::Model full = make(c.dump(), "full");
  c.update({{"sliding_window", 7}, {"max_window_layers", 1}, {"use_sliding_window", true}});
  models::Model model = make(c.dump(), "window");
  const double layer = 12.0 * 6 * 8;  // 12·heads·head_dim, of one
  EXPECT_EQ(model.train_flops_per_token(17), full.train_flops_per_token(17) - 2 * layer * (17 - 7));
  EXPECT_EQ(model.train_flops_per_token(7), full.train_flops_per_token(7));
  for (ParamSpec& param : model.params) param.trainable = param.name.starts_with("model.layers.2");
  double sum = 0;
  for (std::size_t i = 0; i < model.modules.size(); ++i)
    sum += model.modules[i]->forward_flops({3, 17}) + model.modules[i]->backward_flops({3, 17}, model.wanted(i));
  EXPECT_NEAR(sum, model.train_flops_per_token(17) * 51, 1e-12 * sum);
}

TEST(Families, MistralIsLlamaWithoutBiases) {
  EXPECT_THAT(error_with("mistral", "sliding_window", "x"), HasSubstr("\"sliding_window\" is \"x\""));
  EXPECT_THAT(error_with("mistral", "attention_bias", true), HasSubstr("a bias in attention is not supported"));
  EXPECT_EQ(error_with("mistral", "attention_bias", false), "accepted");
  EXPECT_THAT(error_with("mistral", "num_key_value_heads", nullptr), HasSubstr("is missing"));
  // Mistral 7B v0.3 and NeMo 12B, whose heads are narrower than H / nh.
  const json none = {{"sliding_window", nullptr}, {"max_position_embeddings", 131072}};
  EXPECT_EQ(params(decoder("mistral", 32, 4096, 14336, 32, 8, 32768), none), 7'248'023'552);
  json nemo = none;
  nemo["head_dim"] = 128;
  EXPECT_EQ(params(decoder("mistral", 40, 5120, 14336, 32, 8, 131072), nemo), 12'247'782'400);
}

/// The loss of random weights and tokens, and its gradients.
double loss_of(const json& config, std::vector<std::vector<double>>& gradients) {
  const models::Model model = make(config.dump(), "config");
  Runner runner(model, {2, 9});
  runner.randomize(4);
  const double value = runner.train({2, 9}, random_ids({2, 9}, 31, 1), random_ids({2, 9}, 31, 2), 1.0);
  gradients.clear();
  for (std::size_t p = 0; p < model.params.size(); ++p) gradients.push_back(values(runner.grad(static_cast<int>(p))));
  return value;
}

TEST(Families, MistralComputesWhatLlamaDoes) {
  std::vector<std::vector<double>> llama, mistral;
  EXPECT_EQ(loss_of(small("llama"), llama), loss_of(small("mistral"), mistral));
  EXPECT_EQ(llama, mistral);
}

TEST(Families, TwoFrequenciesOfGemma3HaveBothSpellings) {
  json old = small("gemma3_text"), now = old, other = old;
  old.update({{"sliding_window_pattern", 2},
              {"rope_theta", 500.0},
              {"rope_local_base_freq", 70.0},
              {"rope_scaling", {{"rope_type", "linear"}, {"factor", 4.0}}}});
  now.update({{"layer_types", {"sliding_attention", "full_attention", "sliding_attention"}},
              {"rope_parameters",
               {{"full_attention", {{"rope_type", "linear"}, {"factor", 4.0}, {"rope_theta", 500.0}}},
                {"sliding_attention", {{"rope_type", "default"}, {"rope_theta", 70.0}}}}}});
  std::vector<std::vector<double>> a, b;
  const double loss = loss_of(old, a);
  EXPECT_EQ(loss, loss_of(now, b));
  EXPECT_EQ(a, b);
  // Each number counts, though no window is shorter than a row.
  for (const char* key : {"rope_theta", "rope_local_base_freq", "rope_scaling", "sliding_window_pattern"}) {
    other = old;
    other.erase(key);
    EXPECT_NE(loss_of(other, b), loss) << key;
  }
  other = now;
  other["rope_theta"] = 600.0;
  EXPECT_THAT(error_of(other),
              HasSubstr("\"rope_theta\" is 600, but \"rope_parameters.full_attention.rope_theta\" is 500"));
  other = now;
  other["rope_parameters"]["rope_theta"] = 500.0;
  EXPECT_THAT(error_of(other), HasSubstr("\"rope_parameters.rope_theta\" is set, but the numbers of this family"));
  other = now;
  other["rope_parameters"]["sliding_attention"]["mrope_section"] = {1};
  EXPECT_THAT(error_of(other), HasSubstr("\"rope_parameters.sliding_attention.mrope_section\" is set, which is not"));
  EXPECT_THAT(error_with("llama", "rope_parameters", now["rope_parameters"]),
              HasSubstr("\"rope_parameters.full_attention\" is set, which is not supported"));
}

TEST(Families, GemmaWithoutItsSettingsIsRefused) {
  for (const char* family : {"gemma2", "gemma3_text"}) {
    EXPECT_THAT(error_with(family, "sliding_window", nullptr), HasSubstr("\"sliding_window\" is null"));
    EXPECT_THAT(error_with(family, "hidden_act", "silu"), HasSubstr("only \"gelu_pytorch_tanh\""));
  }
  std::vector<std::vector<double>> unused;
  json c = small("gemma2");
  c["final_logit_softcapping"] = 1.0;
  const double capped = loss_of(c, unused);
  c["final_logit_softcapping"] = nullptr;  // no cap, and not the 30 of a missing key
  EXPECT_NE(loss_of(c, unused), capped);
}

TEST(Families, GranitesFactorsAreAboveZero) {
  for (const char* key : {"embedding_multiplier", "residual_multiplier", "attention_multiplier", "logits_scaling"})
    for (const json& value : {json(0), json(-1), json("x")})
      EXPECT_THAT(error_with("granite", key, value), HasSubstr("\"" + std::string(key) + "\" is ")) << value;
}

TEST(Families, RefuseWhatIsMissingMalformedOrAbsurdByKey) {
  for (const char* family : all) {
    for (const char* key : {"num_hidden_layers", "hidden_size", "intermediate_size", "num_attention_heads",
                            "vocab_size", "max_position_embeddings"}) {
      for (const json& value : {json(0), json(-1), json(1.5), json("12"), json(std::int64_t{1} << 40)})
        EXPECT_THAT(error_with(family, key, value), HasSubstr(std::string("\"") + key + "\" is ")) << value;
      EXPECT_THAT(error_with(family, key, nullptr), HasSubstr(std::string("\"") + key + "\" is missing"));
    }
    EXPECT_THAT(error_with(family, "num_key_value_heads", 4), HasSubstr("does not divide"));
    EXPECT_THAT(error_with(family, "rope_theta", "x"), HasSubstr("\"rope_theta\""));
    EXPECT_THAT(error_with(family, "rope_scaling", 3), HasSubstr("not an object"));
    EXPECT_THAT(error_with(family, "rope_scaling", {{"type", "llama3"}}),
                HasSubstr(std::string(family) == "phi3" ? "not supported" : "\"rope_scaling.factor\" is missing"));
    EXPECT_THAT(error_with(family, "head_dim", 7), HasSubstr("even"));
  }
  EXPECT_THAT(error_with("qwen2", "num_key_value_heads", nullptr), HasSubstr("\"num_key_value_heads\" is missing"));
  EXPECT_EQ(error_with("llama", "num_key_value_heads", nullptr), "accepted");
  EXPECT_THAT(error_with("llama", "num_attention_heads", 10), HasSubstr("does not divide"));
  EXPECT_THAT(error_with("qwen3_moe", "num_experts_per_tok", 5), HasSubstr("\"num_experts_per_tok\" is 5"));
  EXPECT_THAT(error_with("qwen3_moe", "mlp_only_layers", {3}), HasSubstr("\"mlp_only_layers\" has 3"));
  EXPECT_THAT(error_with("qwen3_moe", "num_local_experts", 5), HasSubstr("\"num_experts\" is 4"));
}

TEST(Families, ReadBothSpellingsAndTheyMustAgree) {
  const json v5 = {{"rope_type", "linear"}, {"rope_theta", 500.0}, {"factor", 4.0}};
  EXPECT_EQ(error_with("llama", "rope_parameters", v5), "accepted");
  json both = small("llama");
  both["rope_parameters"] = v5;
  both["rope_theta"] = 500.0;
  both["rope_scaling"] = {{"type", "linear"}, {"factor", 4.0}};
  EXPECT_EQ(error_of(both), "accepted");
  both["rope_theta"] = 400.0;
  EXPECT_THAT(error_of(both), HasSubstr("\"rope_theta\" is 400, but"));
  both["rope_theta"] = 500.0;
  both["rope_scaling"]["factor"] = 8.0;
  EXPECT_THAT(error_of(both), HasSubstr("has another \"factor\" than \"rope_parameters\""));
  both["rope_scaling"]["type"] = "yarn";
  EXPECT_THAT(error_of(both), HasSubstr("Keep one"));
  for (const json& eos : {json(3), json::array({1, 2}), json(nullptr)})
    EXPECT_EQ(error_with("qwen3", "eos_token_id", eos), "accepted");
  EXPECT_EQ(error_with("qwen3", "dtype", "bfloat16"), "accepted");
}

}  // namespace
}  // namespace tessera::test::families
