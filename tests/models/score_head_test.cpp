// SPDX-License-Identifier: Apache-2.0
// Reward models: what config.json makes one, its parameters and names, and its config.
#include "models/score_head.hpp"

#include <gtest/gtest.h>

#include "models/lora_files.hpp"
#include "runner.hpp"

namespace tessera::test {
namespace {

using Json = nlohmann::ordered_json;

models::Model reward_model(const char* config, bool tied = false) {
  Json json = Json::parse(config);
  json["tie_word_embeddings"] = tied;
  return models::make(models::reward_config(json.dump(), 2, "test"), "test");
}

TEST(ScoreHead, TakesThePlaceOfTheHead) {
  for (const bool tied : {false, true}) {
    const models::Model language = models::make(small_llama, "test"), model = reward_model(small_llama, tied);
    ASSERT_GE(model.score, 0);
    const ParamSpec& score = model.params[static_cast<std::size_t>(model.score)];
    EXPECT_EQ(score.name, "score.weight");
    EXPECT_EQ(score.shape.str(), Shape({1, 6}).str());
    EXPECT_EQ(score.init.kind, Initializer::Kind::normal);
    EXPECT_EQ(score.init.std, 0.02);
    EXPECT_EQ(model.score + 1, static_cast<int>(model.params.size()));
    EXPECT_EQ(model.pad_token, 2);
    EXPECT_EQ(model.vocab, 11);
    EXPECT_EQ(model.num_params(), language.num_params() - 11 * 6 + 6);
    EXPECT_EQ(model.num_matmul_params(), language.num_matmul_params() - 11 * 6 + 6);
    EXPECT_TRUE(model.writes_sequences);
    EXPECT_GT(model.num_metrics, 0);
    EXPECT_TRUE(models::tensor_use(model, "lm_head.weight").ignored());  // a language model becomes one
    EXPECT_EQ(models::tensor_use(model, "score.weight").parts, std::vector<std::string>{"score.weight"});
    EXPECT_EQ(language.score, -1);
  }
}

TEST(ScoreHead, OfGpt2HasTransformersName) {
  models::Model model = reward_model(small_gpt2, true);
  EXPECT_EQ(models::huggingface_name(model, "score.weight"), "score.weight");
  EXPECT_EQ(models::huggingface_name(model, "h.0.ln_1.weight"), "transformer.h.0.ln_1.weight");
  models::add_lora(model, {.rank = 2, .modules_to_save = {"score"}});
  EXPECT_TRUE(model.params[static_cast<std::size_t>(model.score)].trainable);
  bool saved = false;
  for (const models::AdapterTensor& tensor : models::adapter_tensors(model)) {
    saved = saved || (tensor.name == "base_model.model.score.weight" && tensor.param == model.score);
    EXPECT_EQ(tensor.name.find("score.lora"), std::string::npos) << tensor.name;
  }
  EXPECT_TRUE(saved);
}

TEST(ScoreHead, ConfigsAreThoseOfTransformers) {
  const std::string text = models::reward_config(small_llama, 5, "test");
  const Json json = Json::parse(text);
  EXPECT_EQ(json.at("architectures"), Json::array({"LlamaForSequenceClassification"}));
  EXPECT_EQ(json.at("id2label"), Json({{"0", "LABEL_0"}}));
  EXPECT_EQ(json.at("label2id"), Json({{"LABEL_0", 0}}));
  EXPECT_EQ(json.at("pad_token_id"), 5);
  EXPECT_TRUE(models::has_score(text));
  EXPECT_FALSE(models::has_score(small_llama));
  EXPECT_EQ(Json::parse(models::reward_config(R"({"model_type": "gemma3_text"})", 5, "test")).at("architectures"),
            Json::array({"Gemma3TextForSequenceClassification"}));
  EXPECT_EQ(Json::parse(models::reward_config(text, 7, "test")).at("pad_token_id"), 7);  // TRL: the tokenizer's
}

TEST(ScoreHead, OtherClassifiersAreRefused) {
  const auto refused = [](const char* key, const Json& value) {
    Json json = Json::parse(models::reward_config(small_llama, 5, "test"));
    json[key] = value;
    try {
      (void)models::make(json.dump(), "test");
    } catch (const Error& error) { return error.line(); }
    return std::string();
  };
  EXPECT_NE(refused("id2label", {{"0", "a"}, {"1", "b"}}).find("classifier of 2 labels"), std::string::npos);
  EXPECT_NE(refused("id2label", nullptr).find("classifier of 2 labels"), std::string::npos);  // transformers' default
  EXPECT_NE(refused("pad_token_id", nullptr).find("pad_token_id"), std::string::npos);
  EXPECT_THROW((void)models::reward_config(R"({"model_type": "unknown"})", 5, "test"), Error);
}

}  // namespace
}  // namespace tessera::test
