// SPDX-License-Identifier: Apache-2.0
#pragma once
// Which tokens of a packed micro-batch are padding: one rule for host and device.

#include "kernels/host_device.hpp"
#include "kernels/linear_cross_entropy.hpp"

namespace tessera::kernels {

/// Fields of a micro-batch that tell padding.
struct TokenFields {
  TensorView positions;  // (B, T) int32: a document begins where it is 0; absent: not packed, no padding
  TensorView targets;    // (B, T) int32, ignore_index: no loss; absent: no padding
};

/// Padding is a document of a single token without a target: it fills up a row, and no result depends on it.
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
[[nodiscard]] inline PaddingMap padding_of(const TokenFields& fields) {
  if (!fields.positions || !fields.targets) return {};
  return {fields.positions.as<std::int32_t>(), fields.targets.as<std::int32_t>(), fields.targets.shape[-1]};
}

}  // namespace tessera::kernels
