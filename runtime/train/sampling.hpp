#pragma once
// From logits to a token.

#include <cstdint>
#include <span>

namespace tessera::train {

/// temperature 0: the largest logit, the lowest index among equals. Else a draw from softmax(logits / temperature) with the random number
/// that (seed, position) names. Pure.
[[nodiscard]] std::int32_t pick_token(std::span<const float> logits, double temperature, std::uint64_t seed, std::uint64_t position);

}  // namespace tessera::train
