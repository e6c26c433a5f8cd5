// SPDX-License-Identifier: Apache-2.0
#include "models/lora_config.hpp"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <set>

#include "models/wrappers.hpp"

namespace tessera::models {

namespace {

using Json = nlohmann::ordered_json;

/// Keys that do not change what is computed here, whatever their value.
const std::set<std::string> harmless_keys = {"auto_mapping",      "base_model_name_or_path",
                                             "corda_config",      "ensure_weight_tying",
                                             "eva_config",        "fan_in_fan_out",
                                             "inference_mode",    "loftq_config",
                                             "lora_ga_config",    "megatron_core",
                                             "peft_type",         "peft_version",
                                             "qalora_group_size", "revision",
                                             "runtime_config",    "task_type"};

class LoraConfigReader {
 public:
  LoraConfigReader(const std::string& text, const std::string& source)
      : json_(Json::parse(text, nullptr, /*allow_exceptions=*/false)), source_(source) {
    if (!json_.is_object()) throw Error(ExitCode::data, source + " is not a JSON object");
  }

  [[nodiscard]] LoraSpec read() {
    if (const std::string type = text("peft_type", ""); type != "LORA")
      refuse("peft_type", "is \"" + type + "\"", "Adapters of LoRA alone are read");
    LoraSpec spec;
    spec.strict = false;
    spec.rank = static_cast<std::int64_t>(number("r", 8, 1, 1 << 20));
    spec.alpha = number("lora_alpha", 8, 0, 1e9);
    spec.dropout = number("lora_dropout", 0, 0, 1);
    spec.rslora = flag("use_rslora");
    if (flag("ensure_weight_tying")) refuse("ensure_weight_tying", "is true", "Train tied modules with both names");
    read_bias(spec);
    read_init(spec);
    read_targets(spec);
    read_parameters(spec);
    spec.modules_to_save = names("modules_to_save");
    for (const auto& [key, value] : json_.items())
      if (!used_.contains(key) && !harmless_keys.contains(key) && !is_neutral(value))
        refuse(key, "is " + value.dump(), "It is not supported");
    return spec;
  }

 private:
  [[noreturn]] void refuse(const std::string& key, const std::string& what, const std::string& advice) const {
    throw Error(ExitCode::data, source_ + ": " + key + " " + what, {}, advice);
  }
  static bool is_neutral(const Json& value) {
    return value.is_null() || value == false || (value.is_structured() && value.empty());
  }
  const Json* find(const char* key) {
    used_.insert(key);
    return json_.contains(key) && !json_.at(key).is_null() ? &json_.at(key) : nullptr;
  }
  std::string text(const char* key, const char* absent) {
    const Json* value = find(key);
    if (value == nullptr) return absent;
    if (!value->is_string()) refuse(key, "is not a string", "");
    return value->get<std::string>();
  }
  double number(const char* key, double absent, double least, double most) {
    used_.insert(key);
    if (!json_.contains(key)) return absent;
    const Json& value = json_.at(key);
    const double found = value.is_number() ? value.get<double>() : std::nan("");
    if (!(found >= least && found <= most))
      refuse(key, "is " + value.dump(), strfmt("Expected %.12g to %.12g", least, most));
    return found;
  }
  bool flag(const char* key) {
    const Json* value = find(key);
    if (value != nullptr && !value->is_boolean()) refuse(key, "is " + value->dump(), "Expected true or false");
    return value != nullptr && value->get<bool>();
  }
  std::vector<std::string> names(const char* key) {
    std::vector<std::string> list;
    const Json* value = find(key);
    if (value == nullptr) return list;
    if (!value->is_array()) refuse(key, "is not a list", "");
    for (const Json& name : *value) {
      if (!name.is_string()) refuse(key, "is not a list of strings", "");
      list.push_back(name.get<std::string>());
    }
    return list;
  }
  void read_bias(LoraSpec& spec) {
    const std::string bias = text("bias", "none");
    if (bias == "all") spec.bias = LoraSpec::Bias::all;
    else if (bias == "lora_only") spec.bias = LoraSpec::Bias::lora_only;
    else if (bias != "none") refuse("bias", "is \"" + bias + "\"", "Expected none, all or lora_only");
  }
  /// Methods that change the base model's weights are refused.
  void read_init(LoraSpec& spec) {
    const Json* value = find("init_lora_weights");
    if (value == nullptr || value->is_boolean() || *value == "orthogonal" || *value == "eva") return;
    if (*value == "gaussian") spec.init = LoraSpec::Init::gaussian;
    else
      refuse("init_lora_weights", "is " + value->dump(),
             "It changes the base model: save the adapter with path_initial_model_for_weight_conversion");
  }
  void read_targets(LoraSpec& spec) {
    const Json* value = find("target_modules");
    if (value == nullptr) refuse("target_modules", "is missing", "");
    if (!value->is_string()) spec.targets = names("target_modules");
    else if (*value != "all-linear") spec.targets.clear(), spec.regex = value->get<std::string>();
    spec.regex_source = "target_modules";
  }

  /// PEFT with transformers 5 names a router's weight: there, a router is no Linear.
  void read_parameters(LoraSpec& spec) {
    for (const std::string& name : names("target_parameters")) {
      if (name != "gate.weight" && !name.ends_with(".gate.weight"))
        refuse("target_parameters", "has \"" + name + "\"",
               "Of the parameters, routers (gate.weight) alone have adapters; those of experts are read as files of "
               "transformers 4 have them (gate_proj, up_proj, down_proj, or w1, w3, w2)");
      if (!spec.regex.empty())
        refuse("target_parameters", "stands beside an expression", "Give target_modules as a list");
      spec.targets.push_back(name.substr(0, name.size() - std::string_view(".weight").size()));
    }
  }

  Json json_;
  std::string source_;
  std::set<std::string> used_;
};

/// The shortest ends of names that choose the modules with an adapter and no other Linear, embedding or norm.
/// PEFT with transformers 5 finds experts by names, and by an expression only if it matches without the number.
Json shortest_names(const Model& model) {
  const auto ends_of = [](const std::string& name) {
    std::vector<std::string> ends{name};
    for (std::size_t at = name.find('.'); at != std::string::npos; at = name.find('.', at + 1))
      if (name[at + 1] < '0' || name[at + 1] > '9') ends.push_back(name.substr(at + 1));
    return ends;
  };
  const auto module_of = [&](const std::string& parameter) {
    const std::string name = huggingface_name(model, parameter);
    return name.substr(0, name.rfind('.'));
  };
  std::set<std::string> others, adapted;
  for (const AdaptedModule& module : model.lora->modules) adapted.insert(module_of(module.name + ".weight"));
  for (const ParamSpec& param : model.params)
    if (const std::string module = param.adapter ? "" : module_of(param.name); !adapted.contains(module))
      for (const std::string& end : ends_of(module)) others.insert(end);
  std::set<std::string> names;
  for (const std::string& module : adapted) {
    std::string shortest = module;
    for (const std::string& end : ends_of(module))
      if (end.size() < shortest.size() && !others.contains(end)) shortest = end;
    names.insert(shortest);
  }
  return names;
}

/// Names that choose the same modules in PEFT: their last parts, or where experts, or a tower of images, may have the
/// same, whole names.
Json target_names(const Model& model) {
  Json list = Json::array();
  for (const AdaptedModule& module : model.lora->modules) {
    std::string name = huggingface_name(model, module.name + ".weight");
    name.erase(name.rfind('.'));
    if (model.router.layers == 0 && !is_text_part(model.family)) name.erase(0, name.rfind('.') + 1);
    if (std::ranges::find(list, Json(name)) == list.end()) list.push_back(name);
  }
  return list;
}

}  // namespace

LoraSpec parse_lora_config(const std::string& text, const std::string& source) {
  return LoraConfigReader(text, source).read();
}

std::string lora_config_text(const Model& model, const std::string& base) {
  const LoraSpec& spec = model.lora->spec;
  const bool all = std::ranges::find(spec.targets, "all-linear") != spec.targets.end();
  const auto biases = {"none", "all", "lora_only"};
  const auto number = [](double x) { return x == std::floor(x) ? Json(static_cast<std::int64_t>(x)) : Json(x); };
  Json json;
  json["alpha_pattern"] = Json::object();
  json["auto_mapping"] = nullptr;
  json["base_model_name_or_path"] = base;
  json["bias"] = biases.begin()[static_cast<int>(spec.bias)];
  json["exclude_modules"] = nullptr;
  json["fan_in_fan_out"] = std::ranges::any_of(
      model.lora->modules, [](const AdaptedModule& module) { return module.transposed && !module.embedding; });
  json["inference_mode"] = true;
  json["init_lora_weights"] = spec.init == LoraSpec::Init::gaussian ? Json("gaussian") : Json(true);
  for (const char* key : {"layer_replication", "layers_pattern", "layers_to_transform"}) json[key] = nullptr;
  json["lora_alpha"] = number(spec.alpha);
  json["lora_bias"] = false;
  json["lora_dropout"] = spec.dropout;
  const bool is_part = is_text_part(model.family);  // other parts may have modules of the same names
  json["modules_to_save"] = spec.modules_to_save.empty() ? Json(nullptr)
                            : is_part                    ? Json(saved_modules(model))
                                                         : Json(spec.modules_to_save);
  json["peft_type"] = "LORA";
  json["r"] = spec.rank;
  json["rank_pattern"] = Json::object();
  json["revision"] = nullptr;
  const bool experts = std::ranges::any_of(model.lora->modules, &AdaptedModule::expert);
  json["target_modules"] = is_part || (all && spec.regex.empty()) ? target_names(model)
                           : spec.regex.empty()                   ? Json(spec.targets)
                           : experts                              ? shortest_names(model)
                                                                  : Json(spec.regex);
  json["task_type"] = model.score >= 0 ? "SEQ_CLS" : "CAUSAL_LM";
  json["use_dora"] = false;
  json["use_rslora"] = spec.rslora;
  return json.dump(2) + "\n";
}

}  // namespace tessera::models
