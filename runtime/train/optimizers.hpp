// SPDX-License-Identifier: Apache-2.0
#pragma once
// The optimizers: their options, and the states that they keep (StateSpec).

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "runtime/base/param.hpp"
#include "runtime/exec/optimizer.hpp"

namespace tessera::train {

enum class OptimizerKind : unsigned char { adamw, adamw_8bit, sgd };
/// "adamw", "adamw_8bit", "sgd": as checkpoints name it.
[[nodiscard]] const char* name_of(OptimizerKind kind);

/// Of one parameter.
struct ParamRates {
  double lr_factor = 1;  // times the learning rate
  double weight_decay = 0;
  friend bool operator==(const ParamRates&, const ParamRates&) = default;
};

struct OptimizerOptions {
  OptimizerKind kind = OptimizerKind::adamw;
  double beta1 = 0.9, beta2 = 0.999, eps = 1e-8;  // adamw, adamw_8bit
  double momentum = 0;                            // sgd
  bool nesterov = false;                          // sgd; needs momentum
  double weight_decay = 0;                        // of parameters with ParamSpec::decay
  std::vector<ParamRates> rates;                  // of each parameter; empty: the same rate, weight_decay as above
  std::vector<std::string> param_groups;          // how the user gave `rates`, for records
};

/// The states that the optimizer keeps, in the order of UpdateView::states: exp_avg and exp_avg_sq of AdamW; their
/// 8-bit codes, each followed by the magnitudes of its blocks, of 8-bit AdamW; momentum_buffer of SGD, nothing without
/// momentum.
[[nodiscard]] std::vector<StateSpec> optimizer_states(const OptimizerOptions& options);
/// All options that matter to this optimizer, exactly, as text.
[[nodiscard]] std::string text_of(const OptimizerOptions& options);

/// `params` says which parameters are updated and which have weight decay; it must outlive the optimizer.
[[nodiscard]] std::unique_ptr<exec::Optimizer> make_optimizer(const OptimizerOptions& options,
                                                              std::span<const ParamSpec> params);

}  // namespace tessera::train
