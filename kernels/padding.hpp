#pragma once
// Which tokens of a packed micro-batch are padding, by its words: one rule for host and device.

#include "kernels/host_device.hpp"
#include "kernels/linear_cross_entropy.hpp"

namespace tessera::kernels {

/// What a micro-batch says of its tokens.
struct TokenFields {
  TensorView
      positions;  // (B, T) int32: a document begins where it is 0; absent: rows are not packed, and no token is padding
  TensorView targets;  // (B, T) int32, ignore_index where no loss; absent: likewise
};

/// The same, to be asked: a document of a single token without a target is padding, which fills a row up; nothing may
/// depend on it.
struct PaddingMap {
  const std::int32_t *positions = nullptr, *targets = nullptr;  // null: no token is padding
  std::int64_t row = 1;                                         // T

  TESSERA_HD bool has(std::int64_t token) const {
    if (positions == nullptr || targets == nullptr) return false;
    const std::int64_t next = token + 1;
    const bool alone = positions[token] == 0 && (next % row == 0 || positions[next] == 0);
    return alone && targets[token] == ignore_index;
  }
};
[[nodiscard]] inline PaddingMap padding_of(const TokenFields& words) {
  if (!words.positions || !words.targets) return {};
  return {words.positions.as<std::int32_t>(), words.targets.as<std::int32_t>(), words.targets.shape[-1]};
}

}  // namespace tessera::kernels
