#pragma once
// From logits to a token.

#include <cstdint>
#include <span>
#include <vector>

namespace tessera::train {

/// temperature 0: the largest logit, the lowest index among equals. Else a draw from softmax(logits / temperature) with
/// the random number that (seed, position) names. Pure.
[[nodiscard]] std::int32_t pick_token(std::span<const float> logits, double temperature, std::uint64_t seed,
                                      std::uint64_t position);

/// How tokens are chosen; what transformers' generate does in the same order.
struct Sampling {
  double temperature = 0;  // 0: greedy, and top_k and top_p say nothing
  std::int64_t top_k = 0;  // draw among the k largest (equals of the last included); 0: all
  double top_p = 1;        // then among the fewest that hold this share of the probability
  double repetition_penalty =
      1;  // first: logits of tokens already in the row are divided by it where positive, else multiplied
  std::uint64_t seed = 42;
};

/// Chooses the tokens of rows; allocates when made, not when asked.
class TokenPicker {
 public:
  TokenPicker(const Sampling& sampling, std::int64_t vocab);
  /// The next token of a row that holds `row`. `prompt` and `position` name the random number. Overwrites the logits.
  /// Throws Error (data) where one is not finite.
  [[nodiscard]] std::int32_t pick(std::span<float> logits, std::span<const std::int32_t> row, std::uint64_t prompt,
                                  std::uint64_t position);

 private:
  void penalise(std::span<float> logits, std::span<const std::int32_t> row);
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

}  // namespace tessera::train
