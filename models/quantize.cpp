// SPDX-License-Identifier: Apache-2.0
#include "models/quantize.hpp"

#include <nlohmann/json.hpp>
#include <regex>

#include "models/lora.hpp"
#include "models/module.hpp"
#include "runtime/base/error.hpp"

namespace tessera::models {

namespace {

using Json = nlohmann::ordered_json;

Json quantization_config(const std::string& config_json) {
  const Json config = Json::parse(config_json, nullptr, /*allow_exceptions=*/false);
  if (!config.is_object() || !config.contains("quantization_config")) return {};
  return config.at("quantization_config");
}

[[noreturn]] void refuse_quantization(const std::string& source, const std::string& what) {
  throw Error(ExitCode::usage, source + ": \"quantization_config\" " + what, {},
              "Give the model in bf16, and quantize it here with --quant_method bnb --quant_bits 4");
}

/// Finds the Linears of a model; gives none an adapter.
class LinearFinder final : public AdapterMaker {
 public:
  struct Found {
    int param = -1;
    bool transposed = false, expert = false;
  };
  [[nodiscard]] std::optional<Positions> add(int weight, std::int64_t, std::int64_t, bool transposed,
                                             Kind kind) override {
    if (kind == Kind::linear) found_.push_back({(*indices_)[static_cast<std::size_t>(weight)], transposed});
    return std::nullopt;
  }
  [[nodiscard]] std::optional<Positions> add_group(const Group& group, std::int64_t, std::int64_t,
                                                   bool transposed) override {
    for (std::int64_t e = 0; e < group.groups; ++e)
      found_.push_back({(*indices_)[static_cast<std::size_t>(group.weight + e * group.step)], transposed, true});
    return std::nullopt;
  }
  [[nodiscard]] const LoraSpec& spec() const override { return spec_; }
  [[nodiscard]] const std::vector<Found>& found() const { return found_; }

 private:
  LoraSpec spec_;
  std::vector<Found> found_;
};

/// What the quantization_config of a model leaves in floats.
class Skipped {
 public:
  explicit Skipped(const std::string& config_json) {
    const Json config = quantization_config(config_json);
    stored_ = !config.is_null();
    if (!config.is_object() || !config.contains(skip_key) || config.at(skip_key).is_null()) return;
    if (!config.at(skip_key).is_array())
      refuse_quantization("config.json", "has llm_int8_skip_modules that are no list of names");
    for (const Json& name : config.at(skip_key)) {
      if (!name.is_string()) refuse_quantization("config.json", "has llm_int8_skip_modules that are no list of names");
      names_.push_back(name.get<std::string>());
      try {
        patterns_.emplace_back(names_.back(), std::regex::ECMAScript);
      } catch (const std::regex_error& error) {
        refuse_quantization("config.json", "has llm_int8_skip_modules with \"" + names_.back() +
                                               "\", which is no regular expression: " + error.what());
      }
    }
  }
  /// Whether the weight of this module is in floats, by its name in transformers.
  [[nodiscard]] bool has(const std::string& module, bool expert) const {
    if (stored_ && expert) return true;
    for (std::size_t i = 0; i < names_.size(); ++i)
      if (is_whole_part(module, names_[i]) || module.ends_with(names_[i]) || matches_start(module, patterns_[i]))
        return true;
    return false;
  }

 private:
  static constexpr const char* skip_key = "llm_int8_skip_modules";
  /// transformers 4: "mlp" is a part of "model.layers.0.mlp.up_proj".
  static bool is_whole_part(const std::string& module, const std::string& name) {
    return ("." + module + ".").find("." + name + ".") != std::string::npos;
  }
  /// transformers 5: the expression matches a leading part that ends at a dot or with the name.
  static bool matches_start(const std::string& module, const std::regex& pattern) {
    for (std::size_t end = 1; end <= module.size(); ++end) {
      if (end < module.size() && module[end] != '.' && module[end - 1] != '.') continue;
      const auto stop = module.begin() + static_cast<std::ptrdiff_t>(end);
      if (std::regex_match(module.begin(), stop, pattern)) return true;
    }
    return false;
  }

  bool stored_ = false;
  std::vector<std::string> names_;
  std::vector<std::regex> patterns_;
};

/// What MXFP4 and FP8 have in their configs, and can be read.
void check_coded(const Json& config, const std::string& method, const std::string& source) {
  const bool fp8 = method == "fp8";
  for (const auto& [key, value] : config.items()) {
    const bool known =
        key == "quant_method" || key == "modules_to_not_convert" || key == "dequantize" ||
        (fp8 && (key == "weight_block_size" || key == "activation_scheme" || key == "fmt" || key == "scale_fmt"));
    if (!known && !value.is_null()) refuse_quantization(source, "has " + key + ", which is not supported");
  }
  if (!fp8) return;
  const auto is_size = [](const Json& size) { return size.is_number_integer() && size.get<std::int64_t>() > 0; };
  const Json block = config.value("weight_block_size", Json());
  if (!block.is_array() || block.size() != 2 || !is_size(block[0]) || !is_size(block[1]))
    refuse_quantization(source,
                        "has quant_method fp8 without a weight_block_size of two numbers, and only scales of "
                        "blocks are supported");
  for (const auto& [key, only] : {std::pair{"activation_scheme", "dynamic"}, {"fmt", "e4m3"}})
    if (config.contains(key) && !config.at(key).is_null() && config.at(key) != only)
      refuse_quantization(
          source, std::string("has ") + key + " " + config.at(key).dump() + ", and only " + only + " is supported");
}

}  // namespace

void quantize(Model& model, QuantFormat format, const std::string& config_json) {
  TESSERA_ASSERT(format != QuantFormat::none);
  LinearFinder finder;
  for (const auto& module : model.modules) module->adapt(finder);
  const Skipped skipped(config_json);
  bool any = false;
  for (const LinearFinder::Found& linear : finder.found()) {
    ParamSpec& param = model.params[static_cast<std::size_t>(linear.param)];
    if (param.trainable && model.lora) continue;  // modules_to_save
    const std::string name = huggingface_name(model, param.name);
    if (skipped.has(name.substr(0, name.rfind('.')), linear.expert)) continue;
    if (linear.transposed)
      throw Error(ExitCode::usage,
                  param.name + " is stored as (in, out), and bitsandbytes quantizes (out, in): models of the family " +
                      model.family + " cannot be quantized",
                  "--quant_bits", "Drop --quant_bits");
    param.quantized = {format, param.shape[0], param.shape[1]};
    param.shape = Shape{param.quantized.bytes()};
    param.storage_dtype = DType::u8;
    param.trainable = false;
    any = true;
  }
  if (!any)
    throw Error(ExitCode::usage, "no Linear of the model is frozen: there is nothing to quantize", "--quant_bits",
                "Drop --quant_bits");
}

QuantFormat quantization_of(const std::string& config_json, const std::string& source) {
  const Json config = quantization_config(config_json);
  if (config.is_null()) return QuantFormat::none;
  const auto text = [&](const char* key, const char* missing) -> std::string {
    return config.contains(key) && config.at(key).is_string() ? config.at(key).get<std::string>() : missing;
  };
  const auto is_set = [&](const char* key) {
    return config.contains(key) && config.at(key).is_boolean() && config.at(key).get<bool>();
  };
  if (!config.is_object()) refuse_quantization(source, "is not an object");
  const std::string method = text("quant_method", "bitsandbytes");
  if (method == "mxfp4" || method == "fp8") return check_coded(config, method, source), QuantFormat::none;
  if (method != "bitsandbytes")
    refuse_quantization(source, "has quant_method " + method + ", and only bitsandbytes, mxfp4 and fp8 are supported");
  if (is_set("load_in_8bit") || is_set("_load_in_8bit")) return QuantFormat::int8;
  if (!is_set("load_in_4bit") && !is_set("_load_in_4bit"))
    refuse_quantization(source, "has neither load_in_4bit nor load_in_8bit: other methods are not supported");
  const std::string type = text("bnb_4bit_quant_type", "fp4");
  if (type != "nf4" && type != "fp4")
    refuse_quantization(source, "has bnb_4bit_quant_type " + type + ", and only nf4 and fp4 are supported");
  if (const std::string storage = text("bnb_4bit_quant_storage", "uint8"); storage != "uint8")
    refuse_quantization(source, "has bnb_4bit_quant_storage " + storage + ", and only uint8 is supported");
  return four_bit_format(type == "fp4", is_set("bnb_4bit_use_double_quant"));
}

std::string coded_method(const std::string& config_json) {
  const Json config = quantization_config(config_json);
  if (!config.is_object() || !config.contains("quant_method")) return "";
  const Json& method = config.at("quant_method");
  return method == "mxfp4" || method == "fp8" ? method.get<std::string>() : "";
}

std::string without_quantization(const std::string& config_json) {
  if (quantization_config(config_json).is_null()) return config_json;
  Json config = Json::parse(config_json);
  config.erase("quantization_config");
  return config.dump(2) + "\n";
}

}  // namespace tessera::models
