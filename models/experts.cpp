// SPDX-License-Identifier: Apache-2.0
// Experts as MoeMlp.
#include "models/experts.hpp"

#include "models/mlp.hpp"
#include "models/moe.hpp"
#include "models/shared_expert.hpp"

namespace tessera::models {

ExpertsConfig parse_experts(const ConfigReader& config, const ExpertsKeys& keys) {
  ExpertsConfig e;
  e.count = config.integer(keys.count, 1, 4096);
  e.top_k = config.integer({"num_experts_per_tok"}, 1, e.count);
  e.weigh = keys.weigh;
  const double coefficient = config.number("router_aux_loss_coef", 0, 1e6, 0.001);
  if (config.boolean("output_router_logits", false)) e.balance = coefficient;
  return e;
}

namespace {

/// "model.layers.3.mlp.experts.7."
std::string expert_prefix(const ExpertsConfig& c, const ExpertsLayerSpec& layer, std::int64_t j) {
  return layer.prefix + c.names.expert + std::to_string(j) + ".";
}

}  // namespace

/// Parameters of all experts of a layer.
static FusedExpertsSpec fused_experts(const ExpertsConfig& c, const ExpertsLayerSpec& layer) {
  const std::string prefix = layer.prefix + c.names.expert;
  const Initializer normal{Initializer::Kind::normal, layer.std};
  const auto weight = [&](const char* name, std::int64_t in, std::int64_t out) {
    return ParamSpec{.name = prefix + name, .shape = {c.count, in, out}, .init = normal};
  };
  const auto bias = [](const std::string& name, const Shape& shape) {
    return ParamSpec{.name = name, .shape = shape, .init = {}, .decay = false};
  };
  FusedExpertsSpec spec{.gate_up = weight("gate_up_proj", layer.hidden, 2 * c.intermediate),
                        .down = weight("down_proj", c.intermediate, layer.hidden),
                        .clamped = {}};
  if (c.limits)
    spec.clamped = {.router_bias = bias(layer.prefix + c.names.router + ".bias", {c.count}),
                    .gate_up_bias = bias(prefix + "gate_up_proj_bias", {c.count, 2 * c.intermediate}),
                    .down_bias = bias(prefix + "down_proj_bias", {c.count, layer.hidden}),
                    .limits = *c.limits};
  return spec;
}

std::unique_ptr<Sublayer> make_experts(const ExpertsConfig& c, const ExpertsLayerSpec& layer, ParamList& params) {
  const auto linear = [&](const std::string& name, std::int64_t in, std::int64_t out) {
    return LinearSpec{name, in, out, WeightOrder::out_in, /*bias=*/false, layer.std};
  };
  MoeMlpSpec spec{.router = linear(layer.prefix + c.names.router, layer.hidden, c.count),
                  .experts = {},
                  .top_k = c.top_k,
                  .weigh = c.weigh,
                  .weighs_inputs = c.weighs_inputs,
                  .layer = layer.layer,
                  .balance = c.balance};
  if (c.fused) spec.fused = fused_experts(c, layer);
  for (std::int64_t j = 0; j < c.count && !c.fused; ++j) {
    const std::string prefix = expert_prefix(c, layer, j);
    spec.experts.push_back({.gate = linear(prefix + c.names.gate, layer.hidden, c.intermediate),
                            .up = linear(prefix + c.names.up, layer.hidden, c.intermediate),
                            .down = linear(prefix + c.names.down, c.intermediate, layer.hidden)});
  }
  auto experts = std::make_unique<MoeMlp>(spec, params);
  if (c.shared.empty()) return experts;
  const std::string shared = layer.prefix + c.shared;
  const MlpSpec mlp{.up = {linear(shared + "gate_proj", layer.hidden, c.intermediate),
                           linear(shared + "up_proj", layer.hidden, c.intermediate)},
                    .down = linear(shared + "down_proj", c.intermediate, layer.hidden),
                    .gate = kernels::GateActivation::silu};
  return std::make_unique<SharedExpert>(std::make_unique<Mlp>(mlp, params), std::move(experts), layer.hidden);
}

void add_fused_names(const ExpertsConfig& c, const ExpertsLayerSpec& layer, std::map<std::string, TensorUse>& aliases) {
  if (c.fused) return;
  TensorUse gate_up{.parts = {}, .shape = {c.count, 2 * c.intermediate, layer.hidden}, .same_as = ""};
  TensorUse down{.parts = {}, .shape = {c.count, layer.hidden, c.intermediate}, .same_as = ""};
  for (std::int64_t j = 0; j < c.count; ++j) {
    const std::string prefix = expert_prefix(c, layer, j);
    gate_up.parts.push_back(prefix + c.names.gate + ".weight");
    gate_up.parts.push_back(prefix + c.names.up + ".weight");
    down.parts.push_back(prefix + c.names.down + ".weight");
  }
  aliases[layer.prefix + "mlp.experts.gate_up_proj"] = std::move(gate_up);
  aliases[layer.prefix + "mlp.experts.down_proj"] = std::move(down);
  if (c.names.router != "mlp.gate")
    aliases[layer.prefix + "mlp.gate.weight"] = {
        .parts = {layer.prefix + c.names.router + ".weight"}, .shape = {}, .same_as = ""};
}

std::string partly_frozen_experts(const std::vector<ParamSpec>& params) {
  constexpr std::string_view word = ".experts.";
  std::map<std::string, bool> trainable;  // by name, with * for the expert
  for (const ParamSpec& param : params) {
    const std::size_t at = param.name.find(word);
    if (at == std::string::npos) continue;
    const std::size_t number = at + word.size(), end = param.name.find('.', number);
    if (end == std::string::npos) continue;  // of all experts
    std::string all = param.name.substr(0, number) + "*" + param.name.substr(end);
    if (const auto [first, fresh] = trainable.emplace(all, param.trainable); !fresh && first->second != param.trainable)
      return all;
  }
  return "";
}

}  // namespace tessera::models
