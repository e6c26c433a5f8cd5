// SPDX-License-Identifier: Apache-2.0
#pragma once
// Which tokens of a packed micro-batch are padding: one rule for host and device.

#include <array>

#include "kernels/host_device.hpp"
#include "kernels/linear_cross_entropy.hpp"

namespace tessera::kernels {

/// Fields of a micro-batch that tell padding.
struct TokenFields {
  /// (B, T) int32: a document begins where it is 0; absent: not packed, no padding. Of rows that ranks share (B, C·T),
  /// of whole rows: a document may cross the border of a part.
  TensorView positions;
  TensorView targets;  // (B, T) int32, ignore_index: no loss; absent: no padding
  /// Where in their row the two chunks of T/2 tokens begin (zigzag), if positions are of longer rows.
  std::array<std::int64_t, 2> row_begins = {0, 0};
};

/// Padding is a document of a single token without a target: it fills up a row, and no result depends on it.
struct PaddingMap {
  /// No token is padding.
  PaddingMap() = default;
  /// Of rows of `row_tokens` each.
  PaddingMap(const std::int32_t* of_positions, const std::int32_t* of_targets, std::int64_t row_tokens)
      : positions(of_positions), targets(of_targets), row(row_tokens), whole(row_tokens) {}

  const std::int32_t *positions = nullptr, *targets = nullptr;  // null: no token is padding
  std::int64_t row = 1, whole = 1;                              // T; tokens of the rows of positions
  std::int64_t begins[2] = {0, 0};                              // TokenFields::row_begins

  TESSERA_HD bool has(std::int64_t token) const {
    if (positions == nullptr || targets == nullptr) return false;
    const std::int64_t place = place_of(token), next = place + 1;
    const bool alone = positions[place] == 0 && (next % whole == 0 || positions[next] == 0);
    return alone && targets[token] == ignore_index;
  }

 private:
  /// Of a token among the positions.
  [[nodiscard]] TESSERA_HD std::int64_t place_of(std::int64_t token) const {
    if (row == whole) return token;
    const std::int64_t of_row = token % row, half = row / 2, first = token / row * whole;
    return first + (of_row < half ? begins[0] + of_row : begins[1] + of_row - half);
  }
};
[[nodiscard]] inline PaddingMap padding_of(const TokenFields& fields) {
  if (!fields.positions || !fields.targets) return {};
  PaddingMap map(fields.positions.as<std::int32_t>(), fields.targets.as<std::int32_t>(), fields.targets.shape[-1]);
  map.whole = fields.positions.shape[-1];
  map.begins[0] = fields.row_begins[0];
  map.begins[1] = fields.row_begins[1];
  return map;
}

}  // namespace tessera::kernels
