// SPDX-License-Identifier: Apache-2.0
#pragma once
// Learning-rate schedules, with Hugging Face's names and formulas. Positions are 0-based.

#include <cstdint>
#include <string>

namespace tessera::train {

/// linear warm-up s/warmup, or DeepSpeed's log(s + 1)/log(warmup) (the first step has rate 0 in both), then by kind,
/// with p = (s - warmup)/(total - warmup):
///   constant; linear 1 - p; cosine 0.5·(1 + cos πp); cosine_with_min_lr: the cosine between 1 and min_lr/lr;
///   wsd: stable, then linear to min_lr over the last `decay_steps`.
/// Lengths are in updates of the run's batch. They are whole numbers, unless a run goes on with another batch than the
/// one that it had: then its position is a share of this batch, too.
struct LrSchedule {
  enum class Kind : unsigned char { constant, linear, cosine, cosine_with_min_lr, wsd };
  enum class Warmup : unsigned char { linear, log };
  Kind kind = Kind::cosine;
  Warmup warmup = Warmup::linear;
  double learning_rate = 1e-3, min_lr = 0;
  double warmup_steps = 0, total_steps = 1, decay_steps = 0;
  // After `from_update` updates the schedule is at `from_position`. 0 and 0, unless a resume changed the batch, the
  // data or the length.
  std::int64_t from_update = 0;
  double from_position = 0;

  /// Where the schedule is after so many updates.
  [[nodiscard]] double position(std::int64_t updates) const {
    return from_position + static_cast<double>(updates - from_update);
  }
  /// The learning rate of the update after `updates` updates.
  [[nodiscard]] double at(std::int64_t updates) const { return rate(position(updates)); }
  /// The learning rate at a position.
  [[nodiscard]] double rate(double step) const;
  /// True once no update is in the warm-up any more.
  [[nodiscard]] bool warmed_up(std::int64_t updates) const { return position(updates) >= warmup_steps; }
};

/// "constant", "constant_with_warmup", "linear", "cosine", "cosine_with_min_lr", "wsd"
/// ("warmup_stable_decay"). Throws Error (usage).
[[nodiscard]] LrSchedule::Kind parse_lr_kind(const std::string& word);

}  // namespace tessera::train
