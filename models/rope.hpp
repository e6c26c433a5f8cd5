// SPDX-License-Identifier: Apache-2.0
#pragma once
// Rope: RoPE frequencies from a config: plain, linear, llama3, YaRN and LongRoPE scaling, as in transformers.

#include <cstdint>
#include <string>
#include <vector>

#include "kernels/rope.hpp"
#include "models/config_reader.hpp"

namespace tessera::models {

struct Rope {
  std::vector<double> inv_freq;  // (d / 2), radians per position; the first d numbers of a head are rotated
  double scale = 1;              // of cosines and sines
  /// LongRoPE: the frequencies of sequences longer than `original`. Empty: they have inv_freq, too.
  std::vector<double> long_inv_freq = {};
  std::int64_t original = 0;
  kernels::RotaryPairs pairs = kernels::RotaryPairs::rotate_half;

  [[nodiscard]] std::int64_t width() const { return 2 * static_cast<std::int64_t>(inv_freq.size()); }  // d
  /// Of sequences of up to `tokens` tokens.
  [[nodiscard]] const std::vector<double>& frequencies(std::int64_t tokens) const {
    return long_inv_freq.empty() || tokens <= original ? inv_freq : long_inv_freq;
  }
};

struct RopeShape {
  std::int64_t head_dim = 0, max_tokens = 0;
  double default_theta = 10000;
  /// The types that the family has, from those that are known; empty: all but su, an old name of longrope.
  std::vector<std::string> types = {};
  bool partial = false;  // "partial_rotary_factor" may be below 1
  /// What transformers takes for a missing "original_max_position_embeddings"; 0: max_tokens.
  std::int64_t original = 0;
  /// Of a family whose kinds of layers have frequencies of their own: the key of these in "rope_parameters". Empty: the
  /// object itself has the numbers.
  std::string layers = {};
  std::string theta_key = "rope_theta";  // of transformers 4, in the config
  bool scaled = true;                    // "rope_scaling" is theirs
};

/// Reads rope_theta and rope_scaling (transformers 4) or rope_parameters (5). Throws Error (usage) with the key: an
/// unknown rope_type, missing numbers, partial rotation where the family has none, contradictions between the two
/// forms, or between the object and the config.
[[nodiscard]] Rope parse_rope(const ConfigReader& config, const RopeShape& shape);

}  // namespace tessera::models
