// SPDX-License-Identifier: Apache-2.0
// Computed in double.

#include "runtime/train/lr_schedule.hpp"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "runtime/base/error.hpp"

namespace tessera::train {

namespace {
/// 1 at p = 0, 0 at p = 1 and beyond.
double cosine(double p) { return std::max(0.0, 0.5 * (1.0 + std::cos(std::numbers::pi * std::min(p, 1.0)))); }
}  // namespace

double LrSchedule::rate(double step) const {
  if (step < warmup_steps && warmup == Warmup::log)
    return learning_rate * (std::log(step + 1) / std::log(std::max(2.0, warmup_steps)));
  if (step < warmup_steps) return learning_rate * (step / warmup_steps);
  const double after = std::max(1.0, total_steps - warmup_steps);
  const double p = (step - warmup_steps) / after;
  switch (kind) {
    case Kind::constant: return learning_rate;
    case Kind::linear: return learning_rate * std::max(0.0, (total_steps - step) / after);
    case Kind::cosine: return learning_rate * cosine(p);
    case Kind::cosine_with_min_lr: return min_lr + (learning_rate - min_lr) * cosine(p);
    case Kind::wsd: {
      const double begin = std::max(warmup_steps, total_steps - decay_steps);
      if (step < begin) return learning_rate;
      const double q = (step - begin) / std::max(1.0, total_steps - begin);
      return min_lr + (learning_rate - min_lr) * std::max(0.0, 1.0 - q);
    }
  }
  return learning_rate;
}

LrSchedule::Kind parse_lr_kind(const std::string& word) {
  using Kind = LrSchedule::Kind;
  if (word == "constant" || word == "constant_with_warmup") return Kind::constant;
  if (word == "linear") return Kind::linear;
  if (word == "cosine") return Kind::cosine;
  if (word == "cosine_with_min_lr") return Kind::cosine_with_min_lr;
  if (word == "wsd" || word == "warmup_stable_decay") return Kind::wsd;
  throw Error(ExitCode::usage, "unknown lr_scheduler_type \"" + word + "\"", {},
              "Known: constant, constant_with_warmup, linear, cosine, cosine_with_min_lr, wsd");
}

}  // namespace tessera::train
