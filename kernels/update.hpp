// SPDX-License-Identifier: Apache-2.0
#pragma once
// What the kernels of all optimizers take: the elements of a shard to update, and what the gradient norm decided.

#include <cstdint>
#include <span>

#include "runtime/base/stream.hpp"
#include "runtime/base/tensor.hpp"

namespace tessera::kernels {

/// Written by clip_and_skip once the gradient norm is known; read by every update.
struct UpdateDecision {
  double clip = 1;        // multiplies the gradient
  std::int64_t skip = 0;  // 1: the step overflowed, or is a warm-up step; nothing is updated
};

/// Elements [begin, end) of a shard with the same learning rate and weight decay.
struct UpdateSegment {
  std::int64_t begin = 0, end = 0;
  double lr_factor = 1;  // times the learning rate of the step
  double weight_decay = 0;
};

/// What every optimizer's arguments have.
struct UpdateArgs {
  TensorView param;                          // (n) fp32, updated
  TensorView grad;                           // (n) fp32, only read
  const UpdateDecision* decision = nullptr;  // in the memory of the shard's device, as the optimizer's scalars
  /// Updated elements: ascending, not overlapping; host memory, read during the call. Other elements keep every bit.
  std::span<const UpdateSegment> segments;
  TensorView copy;  // (n) bf16 or fp16: the updated param, rounded to nearest even in the same pass; absent: not wanted
};
/// Asserts that the shapes agree and that the segments are as said.
void check_update(const UpdateArgs& args);

}  // namespace tessera::kernels
