// SPDX-License-Identifier: Apache-2.0
#include "models/quantize.hpp"

#include <nlohmann/json.hpp>

#include "models/lora.hpp"
#include "models/module.hpp"
#include "runtime/base/error.hpp"

namespace tessera::models {

namespace {

/// Finds the Linears of a model; gives none an adapter.
class LinearFinder final : public AdapterMaker {
 public:
  struct Found {
    int param = -1;
    bool transposed = false;
  };
  [[nodiscard]] std::optional<Positions> add(int weight, std::int64_t, std::int64_t, bool transposed,
                                             Kind kind) override {
    if (kind == Kind::linear) found_.push_back({(*indices_)[static_cast<std::size_t>(weight)], transposed});
    return std::nullopt;
  }
  [[nodiscard]] std::optional<GroupPositions> add_group(const Group& group, std::int64_t, std::int64_t,
                                                        bool transposed) override {
    for (std::int64_t e = 0; e < group.groups; ++e)
      found_.push_back({(*indices_)[static_cast<std::size_t>(group.weight + e * group.step)], transposed});
    return std::nullopt;
  }
  [[nodiscard]] const LoraSpec& spec() const override { return spec_; }
  [[nodiscard]] const std::vector<Found>& found() const { return found_; }

 private:
  LoraSpec spec_;
  std::vector<Found> found_;
};

}  // namespace

void quantize(Model& model, QuantFormat format) {
  TESSERA_ASSERT(format != QuantFormat::none);
  LinearFinder finder;
  for (const auto& module : model.modules) module->adapt(finder);
  bool any = false;
  for (const LinearFinder::Found& linear : finder.found()) {
    ParamSpec& param = model.params[static_cast<std::size_t>(linear.param)];
    if (param.trainable && model.lora) continue;  // modules_to_save
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

}  // namespace

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
  if (const std::string method = text("quant_method", "bitsandbytes"); method != "bitsandbytes")
    refuse_quantization(source, "has quant_method " + method + ", and only bitsandbytes is supported");
  if (is_set("load_in_8bit") || is_set("_load_in_8bit")) return QuantFormat::int8;
  if (!is_set("load_in_4bit") && !is_set("_load_in_4bit"))
    refuse_quantization(source, "has neither load_in_4bit nor load_in_8bit: other methods are not supported");
  if (const std::string type = text("bnb_4bit_quant_type", "fp4"); type != "nf4")
    refuse_quantization(source, "has bnb_4bit_quant_type " + type + ", and only nf4 is supported");
  if (!is_set("bnb_4bit_use_double_quant"))
    refuse_quantization(source, "has no bnb_4bit_use_double_quant, and only double quantization is supported");
  if (const std::string type = text("bnb_4bit_quant_storage", "uint8"); type != "uint8")
    refuse_quantization(source, "has bnb_4bit_quant_storage " + type + ", and only uint8 is supported");
  return QuantFormat::nf4;
}

std::string without_quantization(const std::string& config_json) {
  if (quantization_config(config_json).is_null()) return config_json;
  Json config = Json::parse(config_json);
  config.erase("quantization_config");
  return config.dump(2) + "\n";
}

}  // namespace tessera::models
