// SPDX-License-Identifier: Apache-2.0
// Text parts of models of text and images (golden/wrapped): logits, loss and gradients of transformers; what configs
// may say, and what is refused.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <set>

#include "golden.hpp"
#include "models/lora_config.hpp"
#include "models/lora_files.hpp"
#include "models/wrappers.hpp"
#include "runner.hpp"

namespace tessera::test::wrapped {
namespace {

using nlohmann::json;
using testing::HasSubstr;

std::string folder_of(const std::string& name) {
  return std::string(TESSERA_TEST_DATA) + "/golden/wrapped/" + name + "/";
}
json config_of(const std::string& name) { return json::parse(read_file(folder_of(name) + "config.json")); }

std::string error_of_config(const json& config) {
  try {
    (void)models::make(config.dump(), "dir/config.json");
  } catch (const Error& error) { return error.line(); }
  return "accepted";
}

const char* const wrapped_models[] = {"gemma3",     "llama4",   "mistral3",    "qwen2_vl",
                                      "qwen2_5_vl", "qwen3_vl", "qwen3_vl_moe"};

/// Fills the parameters that the tensors of a file hold; returns how many, and how many tensors are of other parts.
template <class Use>
std::pair<std::size_t, std::size_t> fill(Runner& runner, const std::string& path, const Use& use_of) {
  std::size_t found = 0, ignored = 0;
  for (const auto& [file_name, weight] : read_tensors(path)) {
    const TensorUse use = use_of(file_name);
    ignored += use.ignored() ? 1 : 0;
    for (const std::string& part : use.parts) {
      const TensorView& param = runner.param(runner.index(part));
      EXPECT_EQ(static_cast<std::size_t>(param.numel()), weight.size()) << part;
      for (std::int64_t i = 0; i < param.numel(); ++i)
        set(param, i, static_cast<double>(weight.at(static_cast<std::size_t>(i))));
      ++found;
    }
  }
  return {found, ignored};
}

void expect_golden(Runner& runner, const json& golden, const std::function<std::string(const std::string&)>& param_of) {
  const auto ids = golden["ids"].get<std::vector<std::int32_t>>();
  const auto tokens = static_cast<std::int64_t>(ids.size());
  const auto theirs = golden["logits"].get<std::vector<double>>();
  const std::vector<double> ours = runner.logits({1, tokens}, ids);
  double size = 0;
  for (const double x : theirs) size = std::max(size, std::abs(x));
  ASSERT_EQ(ours.size(), theirs.size());
  for (std::size_t i = 0; i < ours.size(); ++i) ASSERT_NEAR(ours[i], theirs[i], 5e-5 * size);
  const models::BatchShape shape{1, tokens - 1};
  const double loss = runner.train(shape, {ids.begin(), ids.end() - 1}, {ids.begin() + 1, ids.end()},
                                   1.0 / static_cast<double>(tokens - 1));
  EXPECT_NEAR(loss, golden["loss"].get<double>(), 2e-5 * loss);
  for (const auto& [name, norm] : golden["gradient_norms"].items()) {
    const double want = norm.get<double>();
    double sum = 0;
    for (const double x : values(runner.grad(runner.index(param_of(name))))) sum += x * x;
    EXPECT_NEAR(std::sqrt(sum), want, 1e-4 * want + 1e-7) << name;
  }
}

TEST(TextParts, ComputeWhatTransformersDoes) {
  for (const std::string name : wrapped_models) {
    SCOPED_TRACE(name);
    const models::Model model = models::make(config_of(name).dump(), name);
    EXPECT_TRUE(models::is_text_part(model.family));
    Runner runner(model, {1, 19});
    const auto [found, ignored] = fill(runner, folder_of(name) + "model.safetensors",
                                       [&](const std::string& tensor) { return models::tensor_use(model, tensor); });
    EXPECT_EQ(found, model.params.size());
    EXPECT_GT(ignored, 5U);
    expect_golden(runner, json::parse(read_file(folder_of(name) + "golden.json")),
                  [](const std::string& param) { return param; });
  }
}

TEST(TextParts, AdaptersAreThoseOfPeft) {
  for (const std::string name : wrapped_models) {
    SCOPED_TRACE(name);
    const std::string folder = folder_of(name) + "lora/";
    models::Model model = models::make(config_of(name).dump(), name);
    models::add_lora(model, models::parse_lora_config(read_file(folder + "adapter_config.json"), folder));
    Runner runner(model, {1, 19});
    (void)fill(runner, folder_of(name) + "model.safetensors",
               [&](const std::string& tensor) { return models::tensor_use(model, tensor); });
    const auto param_of = [&](const std::string& tensor) { return models::adapter_tensor_use(model, tensor); };
    std::set<std::string> theirs, ours;
    for (const auto& [tensor, weight] : read_tensors(folder + "adapter_model.safetensors"))
      if (param_of(tensor).same_as.empty()) theirs.insert(tensor);
    for (const models::AdapterTensor& tensor : models::adapter_tensors(model)) ours.insert(tensor.name);
    EXPECT_EQ(ours, theirs);
    (void)fill(runner, folder + "adapter_model.safetensors", param_of);
    expect_golden(runner, json::parse(read_file(folder + "lora.json")),
                  [&](const std::string& tensor) { return param_of(tensor).parts.at(0); });
  }
}

TEST(TextParts, AdapterConfigsNameModulesOfTheTextAlone) {
  models::Model model = models::make(config_of("gemma3").dump(), "gemma3");
  models::add_lora(model, {.rank = 2, .targets = {"q_proj", "layers.1.mlp.up_proj"}, .modules_to_save = {"norm"}});
  const json config = json::parse(models::lora_config_text(model, "base"));
  const std::string layers = "model.language_model.layers.";
  EXPECT_EQ(config["target_modules"],
            json({layers + "0.self_attn.q_proj", layers + "1.self_attn.q_proj", layers + "1.mlp.up_proj"}));
  const auto saved = config["modules_to_save"].get<std::set<std::string>>();
  EXPECT_TRUE(saved.contains("model.language_model.norm") && saved.contains(layers + "0.input_layernorm"));
  for (const std::string& module : saved) EXPECT_THAT(module, testing::StartsWith("model.language_model."));
  // transformers 4 had the text's modules elsewhere; a tower's adapters are left to the reader, who refuses them.
  const auto use = [&](const std::string& rest) {
    return models::adapter_tensor_use(model, "base_model.model." + rest).parts.at(0);
  };
  EXPECT_EQ(use("language_model.model.layers.0.self_attn.q_proj.lora_A.weight"),
            "model.layers.0.self_attn.q_proj.lora_A.weight");
  const std::string tower = "model.vision_tower.vision_model.encoder.layers.0.self_attn.q_proj.lora_A.weight";
  EXPECT_EQ(use(tower), "base_model.model." + tower);
}

TEST(TextParts, ConfigsAreReadAsTransformersDoes) {
  // Qwen2-VL as it was published: one object, M-RoPE in the old form.
  json flat = config_of("qwen2_vl");
  const json text = flat["text_config"];
  flat.erase("text_config");
  for (const auto& [key, value] : text.items())
    if (key != "model_type" && key != "rope_parameters") flat[key] = value;
  flat["rope_theta"] = 1e6;
  flat["rope_scaling"] = {{"type", "mrope"}, {"mrope_section", {1, 1, 1}}};
  EXPECT_EQ(error_of_config(flat), "accepted");
  // Gemma 3 4B as it was published: what is transformers' default is missing.
  const json gemma = {{"model_type", "gemma3"},
                      {"vision_config", {{"hidden_size", 1152}}},
                      {"text_config",
                       {{"model_type", "gemma3_text"},
                        {"hidden_size", 2560},
                        {"intermediate_size", 10240},
                        {"num_hidden_layers", 34},
                        {"rope_scaling", {{"rope_type", "linear"}, {"factor", 8.0}}},
                        {"sliding_window", 1024}}}};
  const models::Model model = models::make(gemma.dump(), "gemma");
  EXPECT_EQ(model.num_params(), 3'880'263'168);
  EXPECT_EQ(models::tensor_use(model, "language_model.lm_head.weight").same_as, "model.embed_tokens.weight");
  EXPECT_EQ(models::tensor_use(model, "language_model.model.norm.weight").parts.at(0), "model.norm.weight");
  EXPECT_EQ(models::tensor_use(model, "model.language_model.norm.weight").parts.at(0), "model.norm.weight");
  EXPECT_TRUE(models::tensor_use(model, "vision_tower.vision_model.post_layernorm.weight").ignored());
  EXPECT_TRUE(models::tensor_use(model, "model.multi_modal_projector.mm_soft_emb_norm.weight").ignored());
  EXPECT_FALSE(models::tensor_use(model, "another.weight").ignored());  // for the reader to refuse
}

/// A config means what it means with the values of transformers' classes written into it.
TEST(TextParts, MissingNumbersAreThoseOfTransformersClasses) {
  const auto logits = [](const json& config) {
    const models::Model model = models::make(config.dump(), "config.json");
    Runner runner(model, {1, 4});
    for (std::size_t p = 0; p < model.params.size(); ++p) {
      const TensorView& param = runner.param(static_cast<int>(p));
      for (std::int64_t i = 0; i < param.numel(); ++i) set(param, i, 1e-3 * static_cast<double>((7 * i + 3) % 11 - 5));
    }
    return runner.logits({1, 4}, {3, 1, 4, 2});
  };
  for (const std::string name : {"qwen2_vl", "qwen2_5_vl", "qwen3_vl", "qwen3_vl_moe"}) {
    SCOPED_TRACE(name);
    json full = config_of(name), less = full;
    full["text_config"].erase("rope_parameters");
    full["text_config"]["rope_theta"] = name.starts_with("qwen3_vl") ? 5e5 : 1e6;
    less["text_config"].erase("rope_parameters");
    for (const char* key : {"rms_norm_eps", "max_window_layers"}) less["text_config"].erase(key);
    EXPECT_EQ(logits(less), logits(full));
  }
  json config = config_of("qwen2_vl");
  config["text_config"]["tie_word_embeddings"] = true;  // the outer one is false
  EXPECT_EQ(models::make(config.dump(), "config.json").aliases.count("lm_head.weight"), 1U);
}

TEST(TextParts, RefuseByName) {
  json config = config_of("mistral3");
  config["text_config"]["logits_scaling"] = 2.0;
  EXPECT_THAT(error_of_config(config), HasSubstr("\"logits_scaling\" is set, which is not supported"));
  config = config_of("mistral3");
  config["text_config"]["model_type"] = "llama4_text";
  EXPECT_THAT(error_of_config(config), HasSubstr("\"text_config.model_type\" is \"llama4_text\", which is not"));
  config = config_of("qwen3_vl");
  config.erase("text_config");
  EXPECT_THAT(error_of_config(config), HasSubstr("\"text_config\" is missing"));
  config["text_config"] = 3;
  EXPECT_THAT(error_of_config(config), HasSubstr("\"text_config\" is 3, not an object"));
  config = config_of("mistral3");
  config["text_config"]["rope_parameters"]["mrope_section"] = {1, 1};
  EXPECT_THAT(error_of_config(config), HasSubstr("mrope_section"));
  config = config_of("qwen3_vl");
  config["text_config"]["use_sliding_window"] = true;
  EXPECT_THAT(error_of_config(config), HasSubstr("use_sliding_window"));
  config = config_of("qwen3_vl_moe");
  config["text_config"]["norm_topk_prob"] = true;
  EXPECT_EQ(error_of_config(config), "accepted");
  config["text_config"]["norm_topk_prob"] = false;  // transformers' class does not read it
  EXPECT_THAT(error_of_config(config), HasSubstr("norm_topk_prob"));
  config = config_of("qwen2_5_vl");
  config["rope_scaling"] = {{"type", "yarn"}, {"factor", 4.0}};
  EXPECT_THAT(error_of_config(config), HasSubstr("\"rope_scaling\" is not that of \"text_config\""));
  config["rope_scaling"] = {{"type", "mrope"}, {"mrope_section", {1, 1, 1}}};  // says nothing
  EXPECT_EQ(error_of_config(config), "accepted");
  config["text_config"]["quantization_config"] = {{"quant_method", "fp8"}};
  EXPECT_THAT(error_of_config(config), HasSubstr("\"text_config.quantization_config\" is set"));
  EXPECT_THAT(error_of_config({{"model_type", "llama4"}}), HasSubstr("\"text_config\" is missing"));
}

}  // namespace
}  // namespace tessera::test::wrapped
