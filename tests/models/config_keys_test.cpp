// SPDX-License-Identifier: Apache-2.0
// Keys that mean the same in every family's config.json, also in that of a text: what would be another model is
// refused by name. What transformers makes of each is in golden/altered.json.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <set>

#include "golden.hpp"
#include "models/family.hpp"
#include "models/module.hpp"

namespace tessera::test::config_keys {
namespace {

using nlohmann::json;
using testing::HasSubstr;

std::string error_of(const json& config) {
  try {
    (void)models::make(config.dump(), "dir/config.json");
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::usage);
    return error.line();
  }
  return "accepted";
}

/// The models' configs in golden/.
std::vector<json> configs() {
  std::vector<json> found;
  std::set<std::string> families;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(std::string(TESSERA_TEST_DATA) + "/golden")) {
    if (entry.path().filename() != "config.json") continue;
    found.push_back(json::parse(read_file(entry.path().string())));
    EXPECT_EQ(error_of(found.back()), "accepted") << entry.path();
    families.insert(found.back().at("model_type").get<std::string>());
  }
  for (const models::Family& family : models::families()) EXPECT_TRUE(families.contains(family.name)) << family.name;
  return found;
}

/// The errors for a value of a key beside the model's others, and of a text also in its config.
std::vector<std::string> errors_with(const json& config, const std::string& key, const json& value) {
  std::vector<std::string> errors;
  for (const std::string path : {"", "/text_config"}) {
    json other = config;
    if (!path.empty() && !other.contains("text_config")) continue;
    other[json::json_pointer(path + "/" + key)] = value;
    errors.push_back(error_of(other));
  }
  return errors;
}

TEST(ConfigKeys, WhatIsAnotherModelInAnyFamilyIsRefusedByName) {
  const json layer = {{"0", {{"rms_norm_eps", 0.5}}}};
  const std::vector<std::pair<const char*, json>> refused = {
      {"is_causal", false},          {"is_causal", nullptr},         {"is_causal", 0},
      {"per_layer_config", layer},   {"per_layer_config", true},     {"is_encoder_decoder", true},
      {"add_cross_attention", true}, {"architectures", "LlamaModel"}};
  for (const json& config : configs()) {
    for (const auto& [key, value] : refused)
      for (const std::string& error : errors_with(config, key, value))
        EXPECT_THAT(error, HasSubstr(key)) << config["model_type"] << " " << value;
    if (config["model_type"] != "gpt2") {
      EXPECT_THAT(errors_with(config, "layer_types", json::array()).back(), HasSubstr("layer_types\" has 0 entries"));
    }
    for (const char* task : {"ForTokenClassification", "ForQuestionAnswering", "ForMaskedLM", "EncoderModel"})
      for (const std::string& error : errors_with(config, "architectures", {std::string("Some") + task}))
        EXPECT_THAT(error,
                    HasSubstr("\"architectures\" has \"Some" + std::string(task) + "\", which is not supported"));
  }
}

TEST(ConfigKeys, WhatSaysNothingIsAccepted) {
  const std::vector<std::pair<const char*, json>> accepted = {{"is_causal", true},
                                                              {"per_layer_config", nullptr},
                                                              {"per_layer_config", json::object()},
                                                              {"is_decoder", true},
                                                              {"is_decoder", false},
                                                              {"is_encoder_decoder", false},
                                                              {"add_cross_attention", false},
                                                              {"use_qk_norm", false},
                                                              {"an_unknown_key", false},
                                                              {"pad_token_id", nullptr},
                                                              {"rope_scaling", nullptr},
                                                              {"layer_types", nullptr},
                                                              {"architectures", nullptr},
                                                              {"architectures", {"MistralModel"}}};
  for (const json& config : configs()) {
    const std::string family = config["model_type"];
    const bool is_reward = config.value("architectures", json()) == json::array({"Qwen2ForSequenceClassification"});
    for (const auto& [key_of, value] : accepted) {
      const std::string key = key_of;
      if (is_reward && (key == "pad_token_id" || key == "architectures")) continue;
      if (key == "rope_scaling" && config.contains(key)) continue;
      if (key == "layer_types" && family.starts_with("qwen3_vl")) continue;  // transformers' class does not take it
      for (const std::string& error : errors_with(config, key, value))
        EXPECT_EQ(error, "accepted") << family << " " << key << " " << value;
    }
  }
}

TEST(ConfigKeys, NullIsADefaultWhereItIsThatOfTransformers) {
  json granite = json::parse(read_file(std::string(TESSERA_TEST_DATA) + "/golden/granite/config.json"));
  for (const char* key : {"attention_multiplier", "embedding_multiplier", "residual_multiplier", "logits_scaling",
                          "rms_norm_eps", "tie_word_embeddings", "hidden_act", "initializer_range", "head_dim"})
    EXPECT_THAT(
        errors_with(granite, key, nullptr).at(0),
        HasSubstr("\"" + std::string(key) + "\" is null, which transformers does not take in models of \"granite\""));
  EXPECT_EQ(errors_with(granite, "num_key_value_heads", nullptr).at(0), "accepted");
  json yarn = {{"rope_type", "yarn"}, {"factor", 2.0}, {"beta_fast", nullptr}};
  EXPECT_EQ(errors_with(granite, "rope_scaling", yarn).at(0), "accepted");
  EXPECT_THAT(errors_with(granite, "original_max_position_embeddings", nullptr).at(0), HasSubstr("accepted"));
  granite["original_max_position_embeddings"] = nullptr;
  EXPECT_THAT(errors_with(granite, "rope_scaling", yarn).at(0),
              HasSubstr("\"original_max_position_embeddings\" is null"));
  granite.erase("original_max_position_embeddings");
  yarn["truncate"] = nullptr;
  EXPECT_THAT(errors_with(granite, "rope_scaling", yarn).at(0), HasSubstr("\"rope_scaling.truncate\" is null"));
}

TEST(ConfigKeys, NullsOfATextAreThoseOfItsClass) {
  const auto wrapped = [](const std::string& name) {
    return json::parse(read_file(std::string(TESSERA_TEST_DATA) + "/golden/wrapped/" + name + "/config.json"));
  };
  const auto inner = [](json config, const char* key) {
    config["text_config"][key] = nullptr;
    return error_of(config);
  };
  for (const char* key : {"use_sliding_window", "max_window_layers", "attention_dropout", "tie_word_embeddings"})
    EXPECT_EQ(inner(wrapped("qwen2_5_vl"), key), "accepted") << key;
  for (const char* key : {"rms_norm_eps", "hidden_act", "vocab_size"})
    EXPECT_THAT(inner(wrapped("qwen2_5_vl"), key), HasSubstr(key));
  for (const char* key : {"query_pre_attn_scalar", "tie_word_embeddings", "hidden_size", "rms_norm_eps"})
    EXPECT_THAT(inner(wrapped("gemma3"), key), HasSubstr(key));
  for (const char* name : {"gemma3", "llama4", "mistral3", "qwen2_vl", "qwen3_vl", "qwen3_vl_moe"}) {
    json config = wrapped(name);
    config["tie_word_embeddings"] = nullptr;
    EXPECT_THAT(error_of(config), HasSubstr("\"tie_word_embeddings\" is null")) << name;
  }
}

}  // namespace
}  // namespace tessera::test::config_keys
