// SPDX-License-Identifier: Apache-2.0
#pragma once
// Learning-rate schedules, with Hugging Face's names and formulas. Steps are 0-based.

#include <cstdint>
#include <string>

namespace tessera::train {

/// linear warm-up s/warmup, or DeepSpeed's log(s + 1)/log(warmup) (the first step has rate 0 in both), then by kind,
/// with p = (s - warmup)/(total - warmup):
///   constant; linear 1 - p; cosine 0.5·(1 + cos πp); cosine_with_min_lr: the cosine between 1 and min_lr/lr;
///   wsd: stable, then linear to min_lr over the last `decay_steps`.
struct LrSchedule {
  enum class Kind : unsigned char { constant, linear, cosine, cosine_with_min_lr, wsd };
  enum class Warmup : unsigned char { linear, log };
  Kind kind = Kind::cosine;
  Warmup warmup = Warmup::linear;
  double learning_rate = 1e-3, min_lr = 0;
  std::int64_t warmup_steps = 0, total_steps = 1, decay_steps = 0;

  [[nodiscard]] double at(std::int64_t step) const;
};

/// "constant", "constant_with_warmup", "linear", "cosine", "cosine_with_min_lr", "wsd"
/// ("warmup_stable_decay"). Throws Error (usage).
[[nodiscard]] LrSchedule::Kind parse_lr_kind(const std::string& word);

}  // namespace tessera::train
