// SPDX-License-Identifier: Apache-2.0
// What is said of a config.json that is read.
#include "jobs/cli/session/config_warnings.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "jobs/cli/options/model_presets.hpp"
#include "models/config_keys.hpp"
#include "tests/io/files.hpp"

namespace tessera::jobs {
namespace {

TEST(ModelConfig, KeysThatAreNotKnownAreNamed) {
  namespace fs = std::filesystem;
  std::size_t read = 0;
  for (const char* tree : {"/tests/models/golden", "/jobs/examples"})
    for (const auto& entry : fs::recursive_directory_iterator(std::string(TESSERA_SOURCE_DIR) + tree)) {
      const std::string name = entry.path().filename().string();
      if (name != "config.json" && !name.ends_with(".model.json")) continue;
      std::vector<std::string> keys = models::unknown_config_keys(test::bytes_of(entry.path().string()));
      std::erase(keys, "an_unknown_key");  // of one that is there for this
      EXPECT_THAT(keys, testing::IsEmpty()) << entry.path();
      ++read;
    }
  EXPECT_GT(read, 10U);
  for (const char* preset : {"gpt2", "qwen3-0.6b"})
    EXPECT_THAT(models::unknown_config_keys(model_preset_config(preset)), testing::IsEmpty()) << preset;
  const std::string text =
      R"({"model_type": "llama", "logit_scale": 2, "rope_interleaved": true, "mine": [], "off": false, "none": null})";
  EXPECT_THAT(models::unknown_config_keys(text), testing::ElementsAre("logit_scale", "off", "rope_interleaved"));
  EXPECT_THAT(models::unknown_config_keys(
                  R"({"model_type": "llama", "is_decoder": false, "use_mrope": false, "rope_interleaved": false})"),
              testing::IsEmpty());
  EXPECT_THAT(models::unknown_config_keys(R"({"model_type": "gemma3", "text_config": {"off": false}})"),
              testing::ElementsAre("text_config.off"));
  EXPECT_THAT(models::unknown_config_keys(R"({"model_type": "other", "logit_scale": 2})"), testing::IsEmpty());
  testing::internal::CaptureStderr();
  warn_of_config({.text = text, .path = "d/config.json", .directory = "d", .adapter = {}});
  EXPECT_THAT(testing::internal::GetCapturedStderr(),
              testing::HasSubstr("W074: d/config.json has keys that are not known here and not read: \"logit_scale\", "
                                 "\"off\", \"rope_interleaved\". If"));
}

std::string warnings(const std::string& keys) {
  testing::internal::CaptureStderr();
  warn_of_config({.text = "{" + keys + "}", .path = "d/config.json", .directory = "d", .adapter = {}});
  return testing::internal::GetCapturedStderr();
}

TEST(ModelConfig, ClassesThatAreNoLanguageModelsAreNamed) {
  EXPECT_THAT(warnings(R"("model_type": "mistral", "architectures": ["MistralModel", "Other", "MistralForCausalLM"])"),
              testing::HasSubstr("W078: \"architectures\" of d/config.json has \"MistralModel\", \"Other\", which"));
  EXPECT_THAT(warnings(R"("model_type": "gemma3_text", "architectures": ["Gemma3ForConditionalGeneration"])"),
              testing::HasSubstr("W078"));
  for (const char* keys : {R"("model_type": "gemma3", "architectures": ["Gemma3ForConditionalGeneration"])",
                           R"("model_type": "gpt2", "architectures": ["GPT2LMHeadModel"])",
                           R"("model_type": "qwen2", "architectures": ["Qwen2ForSequenceClassification"])",
                           R"("model_type": "qwen2", "architectures": ["Qwen2ForCausalLM"])",
                           R"("model_type": "qwen2", "architectures": ["Qwen2ForTokenClassification"])",  // refused
                           R"("model_type": "qwen2", "architectures": null)", R"("model_type": "qwen2")"})
    EXPECT_EQ(warnings(keys), "") << keys;
}

TEST(ModelConfig, CodeBesideTheModelIsNamed) {
  EXPECT_THAT(warnings(R"("model_type": "phi3", "auto_map": {"AutoConfig": "configuration_phi3.Phi3Config",
                          "AutoModelForCausalLM": "other/repo--modeling_phi3.Phi3ForCausalLM",
                          "AutoTokenizer": ["tokenization.Slow", null]})"),
              testing::HasSubstr("W079: \"auto_map\" of d/config.json names \"configuration_phi3.Phi3Config\", "
                                 "\"other/repo--modeling_phi3.Phi3ForCausalLM\", of code beside the model"));
  EXPECT_THAT(warnings(R"("model_type": "qwen2", "auto_map": {"AutoModel": "modeling.QwenModel"})"),
              testing::HasSubstr("W079"));
  for (const char* map : {"null", "{}", R"(["modeling.QwenModel"])", R"({"AutoModel": null})",
                          R"({"AutoTokenizer": "tokenization.Slow", "AutoProcessor": "processing.Processor"})"})
    EXPECT_EQ(warnings(std::string(R"("model_type": "qwen2", "auto_map": )") + map), "") << map;
}

}  // namespace
}  // namespace tessera::jobs
