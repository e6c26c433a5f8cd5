// SPDX-License-Identifier: Apache-2.0
// Options of LoRA to adapters; adapter_config.json and the names in adapter files, as PEFT has them.
#include "jobs/cli/session/lora.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "io/checkpoint/checkpoint.hpp"
#include "jobs/cli/options/model_presets.hpp"
#include "jobs/cli/session/param_groups.hpp"
#include "jobs/cli/session/precision.hpp"
#include "jobs/cli/session/setup.hpp"
#include "jobs/cli/session/trainable.hpp"
#include "models/lora_config.hpp"
#include "models/lora_files.hpp"
#include "models/quantize.hpp"
#include "tests/jobs/parse.hpp"

namespace tessera::jobs {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

Options lora_options(const std::vector<std::string>& arguments) {
  std::vector<std::string> line = {"train", "--tuner_type", "lora"};
  line.insert(line.end(), arguments.begin(), arguments.end());
  return parsed(line).options;
}

models::Model lora_model(const std::vector<std::string>& arguments, const char* preset = "small") {
  return make_training_model(lora_options(arguments), model_preset_config(preset), preset, DType::f32);
}

template <class F>
std::string error_of(const F& f, ExitCode code = ExitCode::usage) {
  try {
    f();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code);
    return error.line();
  }
  return "";
}

std::vector<std::string> keys(const models::Model& model, std::size_t most) {
  std::vector<std::string> names;
  for (const models::AdapterTensor& tensor : models::adapter_tensors(model))
    if (names.size() < most) names.push_back(tensor.name);
  return names;
}

TEST(LoraOptions, DefaultsAreThoseOfMsSwift) {
  const models::Model model = lora_model({});
  const models::LoraSpec& spec = model.lora->spec;
  EXPECT_EQ(spec.rank, 8);
  EXPECT_EQ(spec.alpha, 32);
  EXPECT_EQ(spec.dropout, 0.05);
  EXPECT_EQ(spec.scale(), 4);
  EXPECT_FALSE(spec.rslora);
  EXPECT_EQ(spec.bias, models::LoraSpec::Bias::none);
  EXPECT_THAT(spec.targets, ElementsAre("all-linear"));
  for (const ParamSpec& param : model.params) EXPECT_EQ(param.trainable, param.adapter) << param.name;
  EXPECT_FALSE(trains_lora(parsed({"train"}).options));
  EXPECT_TRUE(trains_lora(parsed({"train", "--train-type", "lora"}).options));
  EXPECT_TRUE(saves_only_trainable(lora_options({})));
  EXPECT_FALSE(saves_only_trainable(lora_options({"--save_only_trainable", "false"})));
  EXPECT_FALSE(saves_only_trainable(parsed({"train"}).options));
}

TEST(LoraOptions, AreUsed) {
  const models::LoraSpec spec =
      lora_model({"--lora_rank", "4", "--lora_alpha", "8", "--use_rslora", "true", "--lora_dropout", "0.2",
                  "--init_lora_weights", "gaussian", "--lora_bias", "all", "--target_modules", "c_attn,c_fc",
                  "--modules_to_save", "wte", "lm_head"})
          .lora->spec;
  EXPECT_EQ(spec.scale(), 4);
  EXPECT_EQ(spec.dropout, 0.2);
  EXPECT_EQ(spec.init, models::LoraSpec::Init::gaussian);
  EXPECT_EQ(spec.bias, models::LoraSpec::Bias::all);
  EXPECT_THAT(spec.targets, ElementsAre("c_attn", "c_fc"));
  EXPECT_THAT(spec.modules_to_save, ElementsAre("wte", "lm_head"));
  const Options plus = lora_options({"--lorap_lr_ratio", "16"});
  const models::Model model = lora_model({});
  const auto rates = param_rates(plus, model, 0.1);
  for (std::size_t p = 0; p < rates.size(); ++p)
    EXPECT_EQ(rates[p].lr_factor, model.params[p].name.ends_with("lora_B.weight") ? 16 : 1) << model.params[p].name;
}

TEST(LoraOptions, Contradictions) {
  const auto check = [](const std::vector<std::string>& line) {
    return error_of([&] { check_lora_options(parsed(line).options); });
  };
  EXPECT_EQ(check({"train", "--tuner_type", "lora", "--lora_rank", "4"}), "");
  EXPECT_THAT(check({"train", "--lora_rank", "4"}), HasSubstr("no effect without --tuner_type lora"));
  EXPECT_THAT(check({"train", "--adapters", "x", "--lora_rank", "4"}), HasSubstr("adapter_config.json"));
  EXPECT_THAT(check({"train", "--adapters", "x", "--tuner_type", "full"}), HasSubstr("--adapters continues"));
  EXPECT_THAT(check({"train", "--tuner_type", "lora", "--freeze", "wte"}), HasSubstr("--modules_to_save"));
  EXPECT_THAT(check({"train", "--tuner_type", "lora", "--target_modules", "a", "--target_regex", "b"}),
              HasSubstr("both choose"));
  EXPECT_THAT(error_of([] { (void)lora_model({"--target_modules", "q_proj"}); }), HasSubstr("c_attn, c_fc, c_proj"));
}

TEST(LoraFiles, KeysAreThoseOfPeft) {
  EXPECT_THAT(keys(lora_model({"--target_modules", "c_attn", "--modules_to_save", "wte", "lm_head"}), 4),
              ElementsAre("base_model.model.transformer.wte.weight", "base_model.model.lm_head.weight",
                          "base_model.model.transformer.h.0.attn.c_attn.lora_A.weight",
                          "base_model.model.transformer.h.0.attn.c_attn.lora_B.weight"));
  EXPECT_THAT(keys(lora_model({"--target_modules", "c_attn", "--lora_bias", "lora_only"}), 1),
              ElementsAre("base_model.model.transformer.h.0.attn.c_attn.base_layer.bias"));
  EXPECT_THAT(keys(lora_model({"--target_modules", "q_proj"}, "qwen3-0.6b"), 2),
              ElementsAre("base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight",
                          "base_model.model.model.layers.0.self_attn.q_proj.lora_B.weight"));
  // And back.
  const models::Model model = lora_model({"--lora_bias", "all", "--modules_to_save", "wte", "lm_head"});
  for (const models::AdapterTensor& tensor : models::adapter_tensors(model)) {
    const TensorUse use = models::adapter_tensor_use(model, tensor.name);
    const std::string& name = model.params[static_cast<std::size_t>(tensor.param)].name;
    EXPECT_TRUE(use.same_as == name || (use.parts.size() == 1 && use.parts[0] == name)) << tensor.name;
  }
}

TEST(LoraFiles, ExpertsAreNotSavedInFull) {  // PEFT would look for them under another name
  const auto saving = [](const char* module) {
    return error_of([&] {
      (void)lora_model({"--target_modules", "q_proj", "--modules_to_save", module}, "mixtral-8x7b");
    });
  };
  for (const char* module : {"w1", "experts"})
    EXPECT_THAT(saving(module), HasSubstr("--modules_to_save names experts")) << module;
  EXPECT_EQ(saving("norm"), "");
}

TEST(LoraFiles, ConfigIsReadBack) {
  for (const std::vector<std::string>& arguments :
       {std::vector<std::string>{},
        {"--lora_rank", "4", "--use_rslora", "--lora_alpha", "2.5"},
        {"--target_modules", "c_attn", "--lora_bias", "all", "--modules_to_save", "ln_f"},
        {"--target_regex", R"(transformer\.h\.0\..*)", "--init_lora_weights", "gaussian"}}) {
    const models::Model model = lora_model(arguments);
    const std::string text = models::lora_config_text(model, "models/base");
    const auto json = nlohmann::json::parse(text);
    EXPECT_EQ(json["peft_type"], "LORA");
    EXPECT_EQ(json["task_type"], "CAUSAL_LM");
    EXPECT_EQ(json["base_model_name_or_path"], "models/base");
    EXPECT_EQ(json["fan_in_fan_out"], true);  // Conv1D
    const models::LoraSpec spec = models::parse_lora_config(text, "test");
    models::Model again = models::make(model_preset_config("small"), "small");
    models::add_lora(again, spec);
    EXPECT_EQ(models::lora_config_text(again, "models/base"), text);
    EXPECT_EQ(spec.scale(), model.lora->spec.scale());
    ASSERT_EQ(again.params.size(), model.params.size());
    for (std::size_t p = 0; p < model.params.size(); ++p)
      EXPECT_EQ(again.params[p].trainable, model.params[p].trainable);
  }
}

TEST(LoraFiles, SettingsThatAreNotSupportedAreNamed) {
  const auto refused = [](const std::string& more) {
    return error_of(
        [&] {
          (void)models::parse_lora_config(R"({"peft_type": "LORA", "r": 8, "target_modules": ["q_proj"])" + more + "}",
                                          "test");
        },
        ExitCode::data);
  };
  EXPECT_EQ(refused(""), "");
  EXPECT_EQ(refused(R"(, "use_dora": false, "rank_pattern": {}, "a_new_key": null, "peft_version": "0.21")"), "");
  EXPECT_THAT(refused(R"(, "use_dora": true)"), HasSubstr("use_dora"));
  EXPECT_THAT(refused(R"(, "rank_pattern": {"q_proj": 4})"), HasSubstr("rank_pattern"));
  EXPECT_THAT(refused(R"(, "init_lora_weights": "pissa")"), HasSubstr("init_lora_weights"));
  EXPECT_THAT(refused(R"(, "lora_alpha": "big")"), HasSubstr("lora_alpha"));
  EXPECT_THAT(refused(R"(, "peft_type": "LOHA")"), HasSubstr("peft_type"));
  EXPECT_THAT(error_of([] { (void)models::parse_lora_config("[1", "test"); }, ExitCode::data),
              HasSubstr("JSON object"));
}

std::string quantization_error(const std::vector<std::string>& arguments) {
  return error_of([&] { check_options(lora_options(arguments)); });
}

TEST(Quantization, OptionsAreCheckedByName) {
  EXPECT_EQ(quantization_error({"--quant_method", "bnb", "--quant_bits", "4"}), "");
  EXPECT_EQ(quantization_error({"--quant_method", "bnb", "--quant_bits", "8"}), "");
  EXPECT_EQ(quantization_error({"--quant_method", "bnb", "--quant_bits", "4", "--bf16", "--bnb_4bit_compute_dtype",
                                "bfloat16", "--bnb_4bit_quant_type", "nf4", "--bnb_4bit_use_double_quant", "true",
                                "--bnb_4bit_quant_storage", "uint8"}),
            "");
  EXPECT_THAT(quantization_error({"--quant_method", "bnb"}), HasSubstr("Add --quant_bits 4"));
  EXPECT_THAT(quantization_error({"--quant_bits", "4"}), HasSubstr("Add --quant_method bnb"));
  for (const auto& [name, value] : {std::pair{"--bnb_4bit_quant_type", "nf4"},
                                    {"--bnb_4bit_quant_storage", "uint8"},
                                    {"--bnb_4bit_compute_dtype", "float32"},
                                    {"--bnb_4bit_use_double_quant", "true"}})
    EXPECT_THAT(quantization_error({name, value}), HasSubstr(std::string(name) + " has no effect without"));
  EXPECT_THAT(quantization_error({"--quant_method", "bnb", "--quant_bits", "8", "--bnb_4bit_quant_type", "nf4"}),
              HasSubstr("is for --quant_bits 4"));
  EXPECT_EQ(quantization_error({"--quant_method", "bnb", "--quant_bits", "4", "--bnb_4bit_use_double_quant", "false",
                                "--bnb_4bit_quant_type", "fp4"}),
            "");
  EXPECT_THAT(quantization_error(
                  {"--quant_method", "bnb", "--quant_bits", "4", "--bnb_4bit_compute_dtype", "float16", "--bf16"}),
              HasSubstr("Add --fp16"));
  const Options alone =
      lora_options({"--quant_method", "bnb", "--quant_bits", "4", "--bnb_4bit_compute_dtype", "float16"});
  EXPECT_EQ(asked_compute(alone), DType::f16);
  EXPECT_EQ(precision_source(alone), "--bnb_4bit_compute_dtype: command line");
}

TEST(Quantization, FormatsOfFourBits) {
  const auto format = [](const char* type, const char* nested) {
    const models::Model model = lora_model({"--quant_method", "bnb", "--quant_bits", "4", "--bnb_4bit_quant_type", type,
                                            "--bnb_4bit_use_double_quant", nested},
                                           "qwen3-0.6b");
    return std::string(name_of(io::quantization_in(model.params)));
  };
  EXPECT_EQ(format("nf4", "true"), "nf4");
  EXPECT_EQ(format("nf4", "false"), "nf4_single");
  EXPECT_EQ(format("fp4", "true"), "fp4");
  EXPECT_EQ(format("fp4", "false"), "fp4_single");
  const auto of_config = [](const char* keys) {
    return std::string(name_of(models::quantization_of(
        std::string(R"({"quantization_config": {"load_in_4bit": true)") + keys + "}}", "config.json")));
  };
  EXPECT_EQ(of_config(""), "fp4_single");  // transformers' defaults
  EXPECT_EQ(of_config(R"(, "bnb_4bit_quant_type": "nf4")"), "nf4_single");
  EXPECT_EQ(of_config(R"(, "bnb_4bit_quant_type": "nf4", "bnb_4bit_use_double_quant": true)"), "nf4");
  EXPECT_THROW((void)of_config(R"(, "bnb_4bit_quant_type": "int4")"), Error);
}

TEST(Quantization, LeavesNormsEmbeddingsHeadsRoutersAndWhatIsTrained) {
  const models::Model model =
      lora_model({"--quant_method", "bnb", "--quant_bits", "4", "--modules_to_save", "q_proj"}, "qwen3-0.6b");
  int quantized = 0;
  for (const ParamSpec& param : model.params) {
    const bool projection = param.name.find("_proj.weight") != std::string::npos && !param.adapter;
    const bool saved = param.name.find(".q_proj.") != std::string::npos;
    EXPECT_EQ(static_cast<bool>(param.quantized), projection && !saved) << param.name;
    quantized += param.quantized ? 1 : 0;
  }
  EXPECT_EQ(quantized, 28 * 6);
}

/// A model of a preset whose config.json says that it came quantized, with these llm_int8_skip_modules.
models::Model came_quantized(const char* preset, const nlohmann::json& skipped) {
  nlohmann::json config = nlohmann::json::parse(model_preset_config(preset));
  config["quantization_config"] = {{"quant_method", "bitsandbytes"},
                                   {"load_in_4bit", true},
                                   {"bnb_4bit_quant_type", "nf4"},
                                   {"bnb_4bit_use_double_quant", true},
                                   {"llm_int8_skip_modules", skipped}};
  return make_training_model(lora_options({}), config.dump(), preset, DType::f32);
}

TEST(Quantization, SkippedModulesOfAQuantizedModelStayInFloats) {
  int floats = 0;
  const models::Model model =
      came_quantized("qwen3-0.6b", {"lm_head", "model.layers.1", "v_proj", R"(model.layers.\d.mlp.up)", "k_norm",
                                    R"(model\.layers\.2\d\.mlp\.(up|gate)_proj)", "q_pro"});
  for (const ParamSpec& param : model.params) {
    if (param.adapter || param.name.find("_proj.weight") == std::string::npos) continue;
    const bool of_20 = param.name.starts_with("model.layers.2") && param.name[14] != '.';
    const bool gated = param.name.ends_with(".up_proj.weight") || param.name.ends_with(".gate_proj.weight");
    const bool skipped =
        param.name.starts_with("model.layers.1.") || param.name.ends_with(".v_proj.weight") || (of_20 && gated);
    EXPECT_EQ(static_cast<bool>(param.quantized), !skipped) << param.name;
    floats += skipped ? 1 : 0;
  }
  EXPECT_EQ(floats, 7 + 27 + 2 * 8);
  const models::Model attention = came_quantized("qwen3-0.6b", nlohmann::json::array({"mlp"}));
  for (const ParamSpec& param : attention.params) {
    const bool projection = param.name.find("_proj.weight") != std::string::npos && !param.adapter;
    EXPECT_EQ(static_cast<bool>(param.quantized), projection && param.name.find(".self_attn.") != std::string::npos);
  }
  EXPECT_THAT(error_of([] { (void)came_quantized("qwen3-0.6b", "lm_head"); }), HasSubstr("no list of names"));
  EXPECT_THAT(error_of([] { (void)came_quantized("qwen3-0.6b", nlohmann::json::array({"("})); }),
              HasSubstr("no regular expression"));
}

TEST(Quantization, ExpertsOfAQuantizedModelStayInFloats) {
  const models::Model stored = came_quantized("mixtral-8x7b", nullptr);
  for (const ParamSpec& param : stored.params) {
    const bool attention = param.name.find("_proj.weight") != std::string::npos && !param.adapter;
    EXPECT_EQ(static_cast<bool>(param.quantized), attention) << param.name;
  }
  int experts = 0;
  const models::Model made = lora_model({"--quant_method", "bnb", "--quant_bits", "4"}, "mixtral-8x7b");
  for (const ParamSpec& param : made.params)
    experts += param.quantized && param.name.find(".experts.") != std::string::npos ? 1 : 0;
  EXPECT_EQ(experts, 32 * 8 * 3);
}

}  // namespace
}  // namespace tessera::jobs
