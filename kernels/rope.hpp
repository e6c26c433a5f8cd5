// SPDX-License-Identifier: Apache-2.0
#pragma once
// Rotary positions (Su et al. 2021), half rotation as in Hugging Face's models. For a head x of d numbers at position p
// and a_j = p·inv_freq_j: y_j = x_j·cos a_j - x_(j+d/2)·sin a_j and y_(j+d/2) = x_(j+d/2)·cos a_j + x_j·sin a_j, for j
// < d/2. Of a head of more than d numbers the first d are rotated, and the others stay. Llama 4, as the paper, turns
// interleaved pairs instead: x_2j and x_(2j+1) by a_j.

#include <span>

#include "runtime/base/stream.hpp"
#include "runtime/base/tensor.hpp"

namespace tessera::kernels {

struct RopeTableArgs {
  std::span<const double> inv_freq;  // (d/2)
  double scale = 1;                  // of cosines and sines (YaRN)
  TensorView positions;              // (P) int32: of each row of the table; absent: 0 … P-1
  TensorView table;                  // (P, d): d/2 cosines, then d/2 sines of the row's position
};
/// Angles are rounded to the table's type before cosine and sine are taken, as torch does.
void rope_table(const RopeTableArgs& args, StreamView stream);

enum class RotaryPairs : unsigned char { rotate_half, interleaved };  // (j, j + d/2) or (2j, 2j + 1)

enum class Rotation : unsigned char { forward, backward };  // backward: by the negative angle, for gradients

struct RopeArgs {
  TensorView x;               // (N, heads·head_dim), rotated in place
  std::int64_t head_dim = 0;  // at least d
  std::int64_t stride = 0;    // elements from one row of x to the next; 0: contiguous
  TensorView table;           // (P, d), d even, of rope_table; of stat_dtype: fp32 with 16-bit x
  TensorView positions;       // (N) int32: row r takes table row positions[r]; absent: table row r mod P
  Rotation rotation = Rotation::forward;
  RotaryPairs pairs = RotaryPairs::rotate_half;
};
void rope(const RopeArgs& args, StreamView stream);

/// rope_table of a position for each row of x, then rope by that table. On a device one kernel, with the same bits,
/// which leaves the table as it is.
void rope_at_positions(const RopeTableArgs& table, const RopeArgs& args, StreamView stream);

}  // namespace tessera::kernels
