// SPDX-License-Identifier: Apache-2.0
#pragma once
// Mixture of experts of a decoder: its config, its composition, its names in files.

#include <memory>
#include <optional>

#include "kernels/clamped_swiglu.hpp"
#include "kernels/moe.hpp"
#include "models/config_reader.hpp"
#include "models/sublayer.hpp"

namespace tessera::models {

struct ExpertsConfig {
  std::int64_t count = 0;         // E; 0: dense model
  std::int64_t top_k = 0;         // K
  std::int64_t intermediate = 0;  // width of an expert
  kernels::ExpertWeights weigh = kernels::ExpertWeights::normalized;
  bool weighs_inputs = false;  // MoeMlpSpec
  double balance = 0;  // coefficient of the balance loss: router_aux_loss_coef if output_router_logits is true, else 0
  std::vector<std::int64_t> layers;       // layers with experts, ascending
  struct Names {                          // appended to "model.layers.i."
    std::string router;                   // "mlp.gate": + ".weight" (E, H)
    std::string expert = "mlp.experts.";  // + "j." + gate|up|down + ".weight"
    std::string gate, up, down;
  } names;
  bool fused = false;  // all of a layer in names.expert + "gate_up_proj" (E, H, 2·I) and "down_proj" (E, I, H)
  /// A dense MLP of every token beside the experts, of their width: + "gate_proj.weight" and so on; "": none.
  std::string shared = {};
  std::optional<kernels::GateLimits> limits;  // of fused ones: gpt-oss's, with biases
};

struct ExpertsKeys {
  std::vector<std::string> count;  // names of the key for the number of experts
  kernels::ExpertWeights weigh = kernels::ExpertWeights::normalized;
};
/// Reads the keys that these families share. Throws Error (usage) with the key. The family sets intermediate, names and
/// layers.
[[nodiscard]] ExpertsConfig parse_experts(const ConfigReader& config, const ExpertsKeys& keys);

struct ExpertsLayerSpec {
  std::string prefix;       // "model.layers.3."
  std::int64_t hidden = 0;  // H
  double std = 0.02;        // of initial weights
  int layer = 0;            // index among the layers with experts
};
[[nodiscard]] std::unique_ptr<Sublayer> make_experts(const ExpertsConfig& config, const ExpertsLayerSpec& layer,
                                                     ParamList& params);

/// Weights of a layer's experts of which only some are trainable, as "model.layers.3.mlp.experts.*.up_proj.weight"; ""
/// if there are none. Grouped GEMMs on a device need them equally far apart in memory, and units hold one kind of
/// parameter.
[[nodiscard]] std::string partly_frozen_experts(const std::vector<ParamSpec>& params);

/// Names that transformers 5 uses in memory, and may have saved: the router as "mlp.gate", and fused
/// "mlp.experts.gate_up_proj" (E, 2·I, H), gate rows then up rows, and "mlp.experts.down_proj" (E, H, I).
void add_fused_names(const ExpertsConfig& config, const ExpertsLayerSpec& layer,
                     std::map<std::string, TensorUse>& aliases);

}  // namespace tessera::models
