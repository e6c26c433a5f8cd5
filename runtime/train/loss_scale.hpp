#pragma once
// LossScale: the factor on the loss of an fp16 run, so that small gradients do not vanish. It halves when a gradient
// overflows and doubles after a time without, as PyTorch's GradScaler and DeepSpeed do. Only arithmetic; every rank
// walks it alike.

#include <cstdint>

namespace tessera::train {

struct LossScaleOptions {
  double initial = 65536, least = 1;  // powers of two, so that scaling and unscaling round nothing
  double most = 0x1p100;              // it doubles no further
  std::int64_t window = 2000;         // steps without an overflow before it doubles
  int patience = 20;                  // overflows in a row at `least` that end the run
};

/// What a checkpoint keeps of it.
struct LossScaleState {
  double scale = 65536;
  std::int64_t good_steps = 0;  // since the last change
  std::int64_t at_least = 0;    // overflows in a row at the least scale
  friend bool operator==(const LossScaleState&, const LossScaleState&) = default;
};

class LossScale {
 public:
  explicit LossScale(const LossScaleOptions& options) : options_(options), state_{options.initial, 0, 0} {}

  [[nodiscard]] double scale() const { return state_.scale; }
  [[nodiscard]] const LossScaleState& state() const { return state_; }
  void resume(const LossScaleState& state) { state_ = state; }

  /// A step has been taken.
  void passed();
  /// A step has been skipped. False: there is no lower scale to try, and there has not been for too long.
  [[nodiscard]] bool overflowed();

 private:
  LossScaleOptions options_;
  LossScaleState state_;
};

}  // namespace tessera::train
