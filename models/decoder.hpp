#pragma once
// The decoder that Llama, Qwen and Mixtral share: RMSNorm, rotary attention with grouped heads, a gated MLP or
// experts. A family is what it writes into DecoderConfig. Names, order and initialisation are Hugging Face's (Linear
// and tables N(0, initializer_range)).

#include "models/config_reader.hpp"
#include "models/experts.hpp"
#include "models/module.hpp"
#include "models/rope.hpp"

namespace tessera::models {

struct DecoderConfig {
  std::string family;           // model_type
  std::int64_t vocab = 0;       // V
  std::int64_t max_tokens = 0;  // max_position_embeddings
  std::int64_t hidden = 0;      // H
  std::int64_t layers = 0;      // L
  std::int64_t heads = 0;       // nh
  std::int64_t kv_heads = 0;    // nk
  std::int64_t head_dim = 0;    // d, not always H / nh
  std::int64_t inner = 0;       // I, width of the dense MLP
  double norm_eps = 1e-6;
  double initializer_range = 0.02;
  bool tied = false;  // the head's weight is the token table
  bool qkv_bias = false, out_bias = false, mlp_bias = false;
  bool qk_norm = false;  // RMSNorm of each head of q and k
  Rope rope;
  ExpertsConfig experts;  // instead of the dense MLP, in the layers it names
};

/// What differs between families where a key is absent.
struct DecoderDefaults {
  std::int64_t head_dim = 0;      // 0: H / nh
  bool kv_heads_required = true;  // else nh
  double norm_eps = 1e-6, rope_theta = 10000;
};

/// The keys that all these families have. Throws Error (usage) by key, also for what would change the mathematics and
/// is not supported: activations, sliding windows, unknown rotations, quantized weights.
[[nodiscard]] DecoderConfig parse_decoder(const ConfigReader& config, const DecoderDefaults& defaults);

/// embed, layers.0 … layers.(L-1), head; a layer with experts is two modules, layers.i and layers.i.experts.
[[nodiscard]] Model make_decoder(const DecoderConfig& config, DType dtype);

}  // namespace tessera::models
