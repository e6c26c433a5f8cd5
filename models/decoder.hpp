// SPDX-License-Identifier: Apache-2.0
#pragma once
// The decoder of all families but GPT-2: RMSNorm, grouped-query attention with RoPE, SwiGLU or experts. A family fills
// in a DecoderConfig. Names, order and initialization are Hugging Face's (Linear and embeddings N(0,
// initializer_range)).

#include <functional>

#include "kernels/linear_cross_entropy.hpp"
#include "kernels/rms_norm.hpp"
#include "kernels/swiglu.hpp"
#include "models/config_reader.hpp"
#include "models/experts.hpp"
#include "models/module.hpp"
#include "models/rope.hpp"

namespace tessera::models {

/// What differs from layer to layer.
struct DecoderLayer {
  std::int64_t window = 0;  // of attention: a query sees that many keys, itself included; 0: all
  bool rotates = true;      // false: attention without RoPE
  bool slides = false;      // the layer is one of those with a window, also where that masks nothing
};

struct DecoderConfig {
  std::string family;             // model_type
  std::int64_t vocab = 0;         // V
  std::int64_t max_tokens = 0;    // max_position_embeddings
  std::string why_max = {};       // Model::why_max
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
  bool fused_names = false;  // q, k and v are one tensor, and gate and up: qkv_proj, gate_up_proj
  std::string mlp = "mlp.";  // name of the MLP in a layer
  enum class QkNorm : unsigned char { none, heads, joint, unweighted };
  /// RMSNorm of each head of q and k, or of all heads together, or of each, without weights, in layers that rotate.
  QkNorm qk_norm = QkNorm::none;
  /// before: x + f(norm(x)); after: x + norm(f(x)); both: x + norm(f(norm(x))).
  enum class Norms : unsigned char { before, after, both };
  Norms norms = Norms::before;
  double norm_offset = kernels::no_weight_offset;  // added to the weights of all norms
  kernels::GateActivation activation = kernels::GateActivation::silu;
  Rope rope;
  std::optional<Rope> sliding_rope;  // of the layers that slide, if not the same
  std::vector<DecoderLayer> layer;   // (L)
  double embedding_scale = 1;        // factor of token embeddings
  double attention_scale = 0;        // of scores; 0: d^-0.5
  double attention_cap = 0;          // soft cap of scores; 0: none
  bool sinks = false;                // a learned logit of each head joins the softmax
  kernels::LogitRules logits;
  ExpertsConfig experts;  // in place of the dense MLP, in the layers it names
};

/// How a family's config says which layers attend in a window.
struct WindowRule {
  std::int64_t fallback = 0;  // "sliding_window" where the key is absent; 0: no window
  bool switched = false;      // "use_sliding_window" switches it, and is off where it is absent
  bool by_type = false;       // "layer_types" says which layers, where it is given
  std::function<bool(std::int64_t layer)> layers = nullptr;  // which layers else; null: every one
};

/// A family's defaults for absent keys.
struct DecoderDefaults {
  std::int64_t head_dim = 0;      // 0: H / nh
  bool kv_heads_required = true;  // else nh
  double norm_eps = 1e-6, rope_theta = 10000;
  bool tied = false;
  std::vector<std::string> rope_types = {};  // RopeShape::types
  bool partial_rope = false;
  std::int64_t rope_original = 0;          // RopeShape::original
  std::string rope_layers = {};            // RopeShape::layers
  bool gelu = false;                       // the MLP's activation is GELU, in "hidden_activation"
  std::optional<WindowRule> windows = {};  // absent: a window is refused
  bool own_layer_types = false;            // the family reads "layer_types"
};

/// Reads the keys that these families share. Throws Error (usage) with the key, also for settings that are not
/// supported: activations, windows that the family does not have, unknown RoPE types, quantized weights.
[[nodiscard]] DecoderConfig parse_decoder(const ConfigReader& config, const DecoderDefaults& defaults);

/// The windows of Qwen 2 and 3: the layers from "max_window_layers" on.
[[nodiscard]] WindowRule qwen_windows(const ConfigReader& config);

/// embed, layers.0 … layers.(L-1), head; a layer with experts is two modules, layers.i and layers.i.experts.
[[nodiscard]] Model make_decoder(const DecoderConfig& config, DType dtype);

}  // namespace tessera::models
