#pragma once
// The balance loss of mixtures of experts, per micro-batch and over all layers at once, as Hugging Face's: with f_e the share of tokens
// that chose e (all K choices counted) and P_e the mean of its probability, E·Σ f_e·P_e; K at perfect balance.

#include "models/module.hpp"

namespace tessera::models {

/// Tokens of a micro-batch that choose experts and count: all but padding.
[[nodiscard]] std::int64_t choosing_tokens(const Batch& batch);

/// Of one layer, or (layer -1) of all layers' tokens together. `router` is Batch::router as forward has left it, `tokens` its choosing_tokens.
[[nodiscard]] double balance_loss(const TensorView& router, std::int64_t tokens, int layer);

/// What a micro-batch weighs in the step's balance loss: its share of the valid tokens of the global batch.
[[nodiscard]] double balance_weight(const Batch& batch);

/// d(coefficient·weight·loss)/dP of each token, the same for all tokens and layers, as the choices are constants: `out` (E) f64.
void balance_gradient(const TensorView& router, std::int64_t tokens, double factor, const TensorView& out);

}  // namespace tessera::models
