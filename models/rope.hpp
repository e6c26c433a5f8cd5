#pragma once
// Rope: the rotary frequencies of a model, from its config: plain, linear, llama3 and YaRN scaling, as transformers has
// them.

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

/// Of rope_theta and rope_scaling (transformers 4) or rope_parameters (5). Throws Error (usage) by key: an unknown
/// rope_type, a scaling without its numbers, only a part of the head rotated, the two spellings in contradiction.
[[nodiscard]] Rope parse_rope(const ConfigReader& config, const RopeShape& shape);

}  // namespace tessera::models
