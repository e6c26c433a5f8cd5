// SPDX-License-Identifier: Apache-2.0
#pragma once
// Rope: RoPE frequencies from a config: plain, linear, llama3 and YaRN scaling, as in transformers.

#include <cstdint>
#include <vector>

#include "models/config_reader.hpp"

namespace tessera::models {

struct Rope {
  std::vector<double> inv_freq;  // (head_dim / 2), radians per position
  double scale = 1;              // of cosines and sines
};

struct RopeShape {
  std::int64_t head_dim = 0, max_tokens = 0;
  double default_theta = 10000;
};

/// Reads rope_theta and rope_scaling (transformers 4) or rope_parameters (5). Throws Error (usage) with the key: an
/// unknown rope_type, missing numbers, partial rotation, contradictions between the two forms.
[[nodiscard]] Rope parse_rope(const ConfigReader& config, const RopeShape& shape);

}  // namespace tessera::models
