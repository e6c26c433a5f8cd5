// SPDX-License-Identifier: Apache-2.0
#include "runtime/infer/sampling.hpp"

#include <algorithm>
#include <cmath>

#include "runtime/base/error.hpp"
#include "runtime/base/rng.hpp"

namespace tessera::infer {

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

TokenPicker::TokenPicker(const Sampling& sampling, std::int64_t vocab) : sampling_(sampling) {
  if (sampling_.repetition_penalty != 1) seen_.resize(static_cast<std::size_t>(vocab));
  if (sampling_.temperature <= 0) return;
  candidates_.reserve(static_cast<std::size_t>(vocab));
  if (sampling_.top_k > 0) values_.reserve(static_cast<std::size_t>(vocab));
}

void TokenPicker::penalize(std::span<float> logits, std::span<const std::int32_t> row) {
  const auto penalty = static_cast<float>(sampling_.repetition_penalty);
  for (const std::int32_t id : row) {  // each id once
    const auto at = static_cast<std::size_t>(id);
    if (seen_[at]) continue;
    seen_[at] = true;
    logits[at] = logits[at] < 0 ? logits[at] * penalty : logits[at] / penalty;
  }
  for (const std::int32_t id : row) seen_[static_cast<std::size_t>(id)] = false;
}

void TokenPicker::keep_top_k(std::span<const float> logits) {
  const auto k = static_cast<std::size_t>(sampling_.top_k);
  if (k == 0 || k >= logits.size()) return;
  values_.assign(logits.begin(), logits.end());
  std::nth_element(values_.begin(), values_.begin() + static_cast<std::ptrdiff_t>(k - 1), values_.end(),
                   std::greater<>());
  const float least = values_[k - 1];
  std::erase_if(candidates_, [&](const Candidate& c) { return c.logit < least; });
}

void TokenPicker::keep_top_p() {
  if (sampling_.top_p >= 1) return;
  double total = 0;
  for (const Candidate& c : candidates_) total += c.weight;
  // Drops the smallest weights first, unsorted: all below an equal share of what top_p drops.
  const double small = (1 - sampling_.top_p) * total / static_cast<double>(candidates_.size());
  std::erase_if(candidates_, [&](const Candidate& c) { return c.weight < small; });
  std::sort(candidates_.begin(), candidates_.end(), [](const Candidate& a, const Candidate& b) {
    return a.weight != b.weight ? a.weight > b.weight : a.id < b.id;
  });
  double kept = 0;
  std::size_t count = 0;
  while (count < candidates_.size() && (count == 0 || kept < sampling_.top_p * total))
    kept += candidates_[count++].weight;
  candidates_.resize(count);
}

void TokenPicker::refuse_logits(std::uint64_t prompt, std::uint64_t position) {
  throw Error(ExitCode::data, "the model's logits are not finite",
              strfmt("prompt %lu, token %lu", prompt + 1, position + 1),
              "Check the weights: one is not finite, or far too large");
}

static std::uint64_t key_of(std::uint64_t seed, std::uint64_t prompt) {
  return seed ^ (prompt * 0x9E3779B97F4A7C15ull);
}

double TokenPicker::draw(std::uint64_t prompt, std::uint64_t position) const {
  return uniform(key_of(sampling_.seed, prompt), position);
}

std::int32_t TokenPicker::pick(std::span<float> logits, std::span<const std::int32_t> row, std::uint64_t prompt,
                               std::uint64_t position) {
  float probe = 0;
  for (const float logit : logits) probe += 0 * logit;
  if (probe != 0) refuse_logits(prompt, position);
  if (sampling_.repetition_penalty != 1) penalize(logits, row);
  if (sampling_.temperature <= 0) return pick_token(logits, 0, key_of(sampling_.seed, prompt), position);
  const float largest = *std::max_element(logits.begin(), logits.end());
  candidates_.clear();
  for (std::size_t i = 0; i < logits.size(); ++i)
    candidates_.push_back({static_cast<std::int32_t>(i), logits[i],
                           std::exp((static_cast<double>(logits[i]) - largest) / sampling_.temperature)});
  keep_top_k(logits);
  keep_top_p();
  double total = 0;
  for (const Candidate& c : candidates_) total += c.weight;
  double left = draw(prompt, position) * total;
  for (const Candidate& c : candidates_)
    if ((left -= c.weight) < 0) return c.id;
  return candidates_.back().id;
}

}  // namespace tessera::infer
