// SPDX-License-Identifier: Apache-2.0
#pragma once
// The decoder of Llama, Mistral, Qwen and Mixtral: RMSNorm, grouped-query attention with RoPE, SwiGLU or experts. A
// family fills in a DecoderConfig. Names, order and initialization are Hugging Face's (Linear and embeddings N(0,
// initializer_range)).

#include "models/config_reader.hpp"
#include "models/experts.hpp"
#include "models/module.hpp"
#include "models/rope.hpp"

namespace tessera::models {

struct DecoderConfig {
  std::string family;             // model_type
  std::int64_t vocab = 0;         // V
  std::int64_t max_tokens = 0;    // max_position_embeddings
  std::int64_t hidden = 0;        // H
  std::int64_t layers = 0;        // L
  std::int64_t heads = 0;         // nh
  std::int64_t kv_heads = 0;      // nk
  std::int64_t head_dim = 0;      // d; need not be H / nh
  std::int64_t intermediate = 0;  // I, width of the dense MLP
  double norm_eps = 1e-6;
  double initializer_range = 0.02;
  bool tied = false;  // the head's weight is the token embedding
  bool qkv_bias = false, out_bias = false, mlp_bias = false;
  bool qk_norm = false;  // RMSNorm of each head of q and k
  Rope rope;
  ExpertsConfig experts;  // in place of the dense MLP, in the layers it names
};

/// A family's defaults for absent keys.
struct DecoderDefaults {
  std::int64_t head_dim = 0;      // 0: H / nh
  bool kv_heads_required = true;  // else nh
  double norm_eps = 1e-6, rope_theta = 10000;
  /// Throws Error (usage) for a "sliding_window" that masks anything; null: any window is refused, but qwen's, which
  /// "use_sliding_window" switches.
  void (*refuse_window)(const ConfigReader& config, std::int64_t max_tokens) = nullptr;
};

/// Reads the keys that these families share. Throws Error (usage) with the key, also for settings that are not
/// supported: activations, sliding windows, unknown RoPE types, quantized weights.
[[nodiscard]] DecoderConfig parse_decoder(const ConfigReader& config, const DecoderDefaults& defaults);

/// embed, layers.0 … layers.(L-1), head; a layer with experts is two modules, layers.i and layers.i.experts.
[[nodiscard]] Model make_decoder(const DecoderConfig& config, DType dtype);

}  // namespace tessera::models
