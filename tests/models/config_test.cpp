// SPDX-License-Identifier: Apache-2.0
// config.json: accepted keys, their names, and what is refused, each with its key.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "models/module.hpp"

namespace tessera::test {
namespace {

using models::make;
using nlohmann::json;
using testing::HasSubstr;

json base() {
  return json::parse(
      R"({"model_type": "gpt2", "vocab_size": 100, "n_positions": 32, "n_embd": 24, "n_layer": 2, "n_head": 4,
                         "activation_function": "gelu_new"})");
}

std::string error_of(const std::string& text) {
  try {
    (void)make(text, "dir/config.json");
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ExitCode::usage);
    EXPECT_THAT(e.line(), HasSubstr("dir/config.json"));
    EXPECT_EQ(e.line().find('\n'), std::string::npos);
    return e.line();
  }
  return "accepted";
}

std::string error_with(const std::string& key, const json& value) {
  json c = base();
  c[key] = value;
  return error_of(c.dump());
}

TEST(Config, RefusesWhatWouldChangeTheMathematicsByKey) {
  const std::vector<std::pair<std::string, json>> unsupported = {
      {"scale_attn_weights", false},     {"scale_attn_by_inverse_layer_idx", true},
      {"reorder_and_upcast_attn", true}, {"add_cross_attention", true},
      {"is_encoder_decoder", true},      {"tie_word_embeddings", false},
      {"activation_function", "relu"},   {"activation_function", "gelu"},
      {"pruned_heads", {{"0", {1}}}},    {"quantization_config", {{"bits", 4}}}};
  for (const auto& [key, value] : unsupported) {
    EXPECT_THAT(error_with(key, value), HasSubstr("\"" + key + "\"")) << value;
    EXPECT_THAT(error_with(key, value), HasSubstr("not supported")) << value;
  }
  for (const auto& [key, value] : unsupported) {  // null is the default of a few
    const bool takes_null = key == "is_encoder_decoder" || key == "pruned_heads" || key == "quantization_config";
    EXPECT_THAT(error_with(key, nullptr),
                HasSubstr(takes_null ? "accepted" : "\"" + key + "\" is null, which transformers does not take"));
  }
}

TEST(Config, RefusesWhatIsMissingByKey) {
  for (const char* key : {"model_type", "vocab_size", "n_positions", "n_embd", "n_layer", "n_head"}) {
    json c = base();
    c.erase(key);
    EXPECT_THAT(error_of(c.dump()), HasSubstr(std::string("\"") + key + "\" is missing"));
    c[key] = nullptr;
    EXPECT_THAT(error_of(c.dump()), HasSubstr(std::string("\"") + key + "\" is missing"));
  }
}

TEST(Config, RefusesMalformedAndAbsurdValuesByKey) {
  for (const char* key : {"vocab_size", "n_positions", "n_embd", "n_layer", "n_head", "n_inner"})
    for (const json& value : {json(0), json(-1), json(1.5), json(12.0), json("12"), json(true), json::array({1}),
                              json(1e30), json(std::int64_t{1} << 40), json(UINT64_MAX), json(INT64_MIN)})
      EXPECT_THAT(error_with(key, value), HasSubstr(std::string("\"") + key + "\" is ")) << value;
  for (const char* key : {"layer_norm_epsilon", "initializer_range", "resid_pdrop"})
    for (const json& value : {json(-0.5), json(1e30), json("x"), json(false)})
      EXPECT_THAT(error_with(key, value), HasSubstr(std::string("\"") + key + "\" is ")) << value;
  for (const char* key : {"scale_attn_weights", "add_cross_attention", "tie_word_embeddings"})
    for (const json& value : {json(1), json("true")})
      EXPECT_THAT(error_with(key, value), HasSubstr(std::string("\"") + key + "\" is ")) << value;
  EXPECT_THAT(error_with("layer_norm_epsilon", 0), HasSubstr("\"layer_norm_epsilon\""));
  EXPECT_THAT(error_with("n_head", 5), HasSubstr("\"n_head\" is 5, which does not divide \"n_embd\" = 24"));
  EXPECT_THAT(error_with("activation_function", 3), HasSubstr("\"activation_function\""));
}

TEST(Config, RefusesOtherFamiliesAndNamesThoseItHas) {
  EXPECT_THAT(error_with("model_type", "bert"), HasSubstr("\"model_type\" is \"bert\""));
  EXPECT_THAT(error_with("model_type", "bert"), HasSubstr("gpt2, llama, mistral, qwen2"));
  EXPECT_THAT(error_with("model_type", 7), HasSubstr("\"model_type\""));
}

TEST(Config, RefusesTextThatIsNoConfig) {
  for (const std::string& text :
       {std::string(), std::string("{"), std::string("[]"), std::string("3"), std::string("null"),
        std::string("{\"model_type\": \"gpt2\",}"), std::string("\x80\xff\0\1", 4), base().dump() + "x"})
    EXPECT_NE(error_of(text), "accepted") << text;
  EXPECT_THAT(error_of("{\"model_type\":\n oops}"), HasSubstr("line 2"));
  EXPECT_THAT(error_of(R"({"model_type": "gpt2", "n_embd": 3, "n_embd": 4})"), HasSubstr("\"n_embd\" is there twice"));
  EXPECT_THAT(error_of(std::string(100000, '[')), HasSubstr("config"));
  EXPECT_THAT(error_of("{\"a\":" + std::string(1000, '[') + std::string(1000, ']') + "}"), HasSubstr("nested"));
  EXPECT_THAT(error_of(std::string(std::size_t{2} << 20, ' ')), HasSubstr("bytes"));
}

TEST(Config, ReadsTheOtherSpellings) {
  json generic = {{"model_type", "gpt2"}, {"vocab_size", 100},      {"max_position_embeddings", 32},
                  {"hidden_size", 24},    {"num_hidden_layers", 2}, {"num_attention_heads", 4},
                  {"dtype", "bfloat16"}};
  EXPECT_EQ(make(generic.dump(), "generic").num_params(), make(base().dump(), "base").num_params());
  EXPECT_EQ(error_with("torch_dtype", "float32"), "accepted");
  EXPECT_EQ(error_with("activation_function", "gelu_pytorch_tanh"), "accepted");
  EXPECT_EQ(error_with("n_ctx", 32), "accepted");
  EXPECT_THAT(error_with("n_ctx", 16), HasSubstr("\"n_ctx\" is 16, but \"n_positions\" is 32"));
  EXPECT_THAT(error_with("hidden_size", 48), HasSubstr("\"hidden_size\""));
  EXPECT_EQ(error_with("n_inner", nullptr), "accepted");
  EXPECT_EQ(error_with("unknown_key", 3), "accepted");
  json c = base();
  c["n_inner"] = nullptr;
  EXPECT_EQ(make(c.dump(), "null").num_params(), make(base().dump(), "base").num_params());
}

TEST(Config, NamesTheKeysThatAskForDropout) {
  json c = base();
  c["resid_pdrop"] = 0.1;
  c["attn_pdrop"] = 0.25;
  c["embd_pdrop"] = 0.0;
  EXPECT_EQ(make(c.dump(), "dropout").dropout, "attn_pdrop = 0.25, resid_pdrop = 0.1");
  c["resid_pdrop"] = 0;
  c["attn_pdrop"] = 0.0;
  EXPECT_EQ(make(c.dump(), "none").dropout, "");
  EXPECT_THAT(error_with("attn_pdrop", 2), HasSubstr("\"attn_pdrop\""));
}

}  // namespace
}  // namespace tessera::test
