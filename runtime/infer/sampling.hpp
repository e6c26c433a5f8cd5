// SPDX-License-Identifier: Apache-2.0
#pragma once
// Choosing a token by its logits.

#include <cstdint>
#include <span>
#include <vector>

namespace tessera::infer {

/// temperature 0: the largest logit, the lowest index among equals. Otherwise a sample of softmax(logits /
/// temperature), with the random number of (seed, position). Pure.
[[nodiscard]] std::int32_t pick_token(std::span<const float> logits, double temperature, std::uint64_t seed,
                                      std::uint64_t position);

/// Sampling parameters, applied in the order of transformers' generate.
struct Sampling {
  double temperature = 0;         // 0: greedy; top_k and top_p have no effect
  std::int64_t top_k = 0;         // sample among the k largest, including ties with the last; 0: all
  double top_p = 1;               // then among the fewest with this share of the probability
  double repetition_penalty = 1;  // first: divides positive logits of tokens in the row, multiplies negative ones
  std::uint64_t seed = 42;
};

/// Chooses tokens. Only its constructor allocates.
class TokenPicker {
 public:
  TokenPicker(const Sampling& sampling, std::int64_t vocab);
  /// Whether pick() changes logits by the row's tokens, which only the host has.
  [[nodiscard]] bool penalizes() const { return sampling_.repetition_penalty != 1; }
  /// The number in [0, 1) that draws the token; not with temperature 0.
  [[nodiscard]] double draw(std::uint64_t prompt, std::uint64_t position) const;
  /// Throws Error (data): a logit of the row is not finite.
  [[noreturn]] static void refuse_logits(std::uint64_t prompt, std::uint64_t position);
  /// The next token of a row with the tokens `row`. `prompt` and `position` select the random number. Overwrites the
  /// logits. Throws Error (data) if one is not finite.
  [[nodiscard]] std::int32_t pick(std::span<float> logits, std::span<const std::int32_t> row, std::uint64_t prompt,
                                  std::uint64_t position);

 private:
  void penalize(std::span<float> logits, std::span<const std::int32_t> row);
  void keep_top_k(std::span<const float> logits);
  void keep_top_p();

  struct Candidate {
    std::int32_t id;
    float logit;
    double weight;
  };
  Sampling sampling_;
  std::vector<Candidate> candidates_;
  std::vector<float> values_;
  std::vector<bool> seen_;
};

}  // namespace tessera::infer
