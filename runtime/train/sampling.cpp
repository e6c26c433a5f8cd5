#include "runtime/train/sampling.hpp"

#include <algorithm>
#include <cmath>

#include "runtime/base/rng.hpp"

namespace tessera::train {

std::int32_t pick_token(std::span<const float> logits, double temperature, std::uint64_t seed, std::uint64_t position) {
  const auto largest = std::max_element(logits.begin(), logits.end());
  if (temperature <= 0) return static_cast<std::int32_t>(largest - logits.begin());
  const auto weight = [&](float logit) { return std::exp((static_cast<double>(logit) - *largest) / temperature); };
  double total = 0;
  for (const float logit : logits) total += weight(logit);
  double left = uniform(seed, position) * total;
  for (std::size_t i = 0; i < logits.size(); ++i)
    if ((left -= weight(logits[i])) < 0) return static_cast<std::int32_t>(i);
  return static_cast<std::int32_t>(logits.size()) - 1;
}

}  // namespace tessera::train
