// SPDX-License-Identifier: Apache-2.0
#pragma once
// GPT-2 (model_type "gpt2"): its config and its composition. Names, order and initialization are Hugging Face's.

#include "models/config_reader.hpp"
#include "models/module.hpp"

namespace tessera::models {

/// The content of a GPT-2 config.json, checked.
struct Gpt2Config {
  std::int64_t vocab = 0;         // V
  std::int64_t max_tokens = 0;    // n_positions
  std::int64_t hidden = 0;        // H
  std::int64_t layers = 0;        // L
  std::int64_t heads = 0;         // head_dim = H / heads
  std::int64_t intermediate = 0;  // width of the MLP; 4·H unless the config says otherwise
  double norm_eps = 1e-5;
  double initializer_range = 0.02;
};

/// Throws Error (usage) as models::make does.
[[nodiscard]] Gpt2Config parse_gpt2(const ConfigReader& config);

/// embed, h.0 … h.(L-1), head; the head's weight is the token table.
[[nodiscard]] Model make_gpt2(const Gpt2Config& config, DType dtype);

}  // namespace tessera::models
