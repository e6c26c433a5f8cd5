#pragma once
// Experts of a decoder: what a config says of them, how one layer of them is put together, and
// under which names files hold them.

#include <memory>

#include "models/config_reader.hpp"
#include "models/sublayer.hpp"

namespace tessera::models {

struct ExpertsConfig {
  std::int64_t count = 0;   // E; 0: no layer has experts
  std::int64_t chosen = 0;  // K
  std::int64_t inner = 0;   // width of an expert
  bool normalise = true;    // chosen weights are divided by their sum
  double balance =
      0;  // coefficient of the balance loss: router_aux_loss_coef where output_router_logits is true, else 0
  std::vector<std::int64_t> layers;  // those with experts, ascending
  struct Names {                     // behind "model.layers.i."
    std::string router;              // "mlp.gate": + ".weight" (E, H)
    std::string expert;              // "mlp.experts.": + "j." + gate|up|down + ".weight"
    std::string gate, up, down;
  } names;
};

struct ExpertsKeys {
  std::vector<std::string> count;  // spellings of the number of experts
  bool normalise = true;
};
/// The keys that all such families have. Throws Error (usage) by key. inner, names and layers are the family's to fill
/// in.
[[nodiscard]] ExpertsConfig parse_experts(const ConfigReader& config, const ExpertsKeys& keys);

struct ExpertsLayerSpec {
  std::string prefix;       // "model.layers.3."
  std::int64_t hidden = 0;  // H
  double std = 0.02;        // of fresh weights
  int layer = 0;            // among those with experts
};
[[nodiscard]] std::unique_ptr<Sublayer> make_experts(const ExpertsConfig& config, const ExpertsLayerSpec& place,
                                                     ParamList& params);

/// The names under which transformers 5 holds a layer's experts in memory, and may have stored them: the router under
/// "mlp.gate", and fused "mlp.experts.gate_up_proj" (E, 2·I, H), gate rows then up rows, and "mlp.experts.down_proj"
/// (E, H, I).
void add_fused_names(const ExpertsConfig& config, const ExpertsLayerSpec& place,
                     std::map<std::string, TensorUse>& aliases);

}  // namespace tessera::models
