// SPDX-License-Identifier: Apache-2.0
#pragma once
// LossScale: dynamic loss scaling for fp16, as in PyTorch's GradScaler and DeepSpeed. The scale halves when a gradient
// overflows (with a hysteresis N, after N - 1 overflows that only skip their step) and doubles after a number of steps
// without overflow. Pure arithmetic, the same on every rank.

#include <cstdint>

namespace tessera::train {

struct LossScaleOptions {
  double initial = 65536, least = 1;  // powers of two, so that scaling is exact
  double most = 0x1p100;              // upper limit
  std::int64_t window = 2000;         // steps without an overflow before it doubles
  int patience = 20;                  // overflows in a row at `least` before the run ends
  // DeepSpeed's hysteresis: the first N - 1 overflows after a doubling leave the scale; `consecutive_hysteresis`: after
  // any step without overflow.
  std::int64_t hysteresis = 1;
  bool consecutive_hysteresis = false;
};

/// What a checkpoint stores.
struct LossScaleState {
  double scale = 65536;
  std::int64_t good_steps = 0;  // since the last change or overflow
  std::int64_t at_least = 0;    // overflows in a row at the least scale
  std::int64_t tolerated = 0;   // overflows that left the scale as it was; of `hysteresis`
  friend bool operator==(const LossScaleState&, const LossScaleState&) = default;
};

class LossScale {
 public:
  explicit LossScale(const LossScaleOptions& options) : options_(options), state_{options.initial, 0, 0, 0} {}

  [[nodiscard]] double scale() const { return state_.scale; }
  [[nodiscard]] const LossScaleState& state() const { return state_; }
  void resume(const LossScaleState& state) { state_ = state; }

  /// After a step without overflow.
  void passed();
  /// After a step with overflow, which was skipped. False: `patience` overflows in a row at the least scale.
  [[nodiscard]] bool overflowed();

 private:
  LossScaleOptions options_;
  LossScaleState state_;
};

}  // namespace tessera::train
