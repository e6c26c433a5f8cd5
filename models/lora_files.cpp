// SPDX-License-Identifier: Apache-2.0
#include "models/lora_files.hpp"

#include <algorithm>

namespace tessera::models {

namespace {

constexpr std::string_view peft_prefix = "base_model.model.", base_layer = ".base_layer";

/// "….q_proj.bias" → "….q_proj.base_layer.bias" for a module with an adapter, inside which PEFT keeps the Linear.
std::string with_base_layer(const Model& model, const ParamSpec& param, const std::string& name) {
  const std::size_t dot = param.name.rfind('.');
  const bool adapted = std::ranges::any_of(
      model.lora->modules, [&](const AdaptedModule& module) { return module.name == param.name.substr(0, dot); });
  if (!adapted || param.adapter) return name;
  const std::size_t at = name.rfind('.');
  return name.substr(0, at) + std::string(base_layer) + name.substr(at);
}

}  // namespace

std::vector<AdapterTensor> adapter_tensors(const Model& model) {
  std::vector<AdapterTensor> tensors;
  for (std::size_t p = 0; p < model.params.size(); ++p) {
    const ParamSpec& param = model.params[p];
    if (!param.trainable) continue;
    const std::string name = with_base_layer(model, param, huggingface_name(model, param.name));
    tensors.push_back({std::string(peft_prefix) + name, static_cast<int>(p)});
    for (const auto& [alias, use] : model.aliases)
      if (use.same_as == param.name) tensors.push_back({std::string(peft_prefix) + alias, static_cast<int>(p)});
  }
  return tensors;
}

TensorUse adapter_tensor_use(const Model& model, const std::string& name) {
  if (!name.starts_with(peft_prefix)) return {.parts = {name}, .shape = {}, .same_as = ""};
  std::string rest = name.substr(peft_prefix.size());
  const std::size_t lora = rest.find(".lora_");
  if (lora != std::string::npos) {
    const std::string named = rest.substr(0, lora) + ".weight";
    const std::string weight = model.aliases.contains(named) ? named : canonical_name(model, named);
    if (weight.empty()) return {.parts = {name}, .shape = {}, .same_as = ""};
    const std::string module = weight.substr(0, weight.rfind('.'));
    return {.parts = {module + rest.substr(lora)}, .shape = {}, .same_as = ""};
  }
  if (const std::size_t at = rest.rfind(base_layer); at != std::string::npos) rest.erase(at, base_layer.size());
  TensorUse use = tensor_use(model, rest);
  if (use.ignored()) use.parts = {name};
  // PEFT saves the weight of an adapted head too.
  const auto param = std::ranges::find(model.params, use.parts.size() == 1 ? use.parts[0] : "", &ParamSpec::name);
  if (param != model.params.end() && !param->trainable) return {.parts = {}, .shape = {}, .same_as = param->name};
  return use;
}

}  // namespace tessera::models
