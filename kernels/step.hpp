// SPDX-License-Identifier: Apache-2.0
#pragma once
// Gradient norm, clip factor and skip flag of a step, computed where the sums are. On a device the host does not wait
// for them: the optimizer's kernel reads the clip factor and the flag from device memory.

#include <cstddef>
#include <cstring>
#include <type_traits>

#include "kernels/update.hpp"
#include "runtime/base/exact_sum.hpp"

namespace tessera::kernels {

/// The optimizer's own scalars of a step (AdamWScalars, SgdScalars, …); only its kernels know the type.
class OptimizerScalars {
 public:
  OptimizerScalars() = default;
  template <class T>
  explicit OptimizerScalars(const T& scalars) {
    static_assert(std::is_trivially_copyable_v<T> && sizeof(T) <= sizeof bytes_ && alignof(T) <= 8);
    std::memcpy(bytes_, &scalars, sizeof scalars);
  }
  /// Their address, in the memory that holds this object.
  template <class T>
  [[nodiscard]] const T* as() const {
    return reinterpret_cast<const T*>(bytes_);
  }

 private:
  alignas(8) std::byte bytes_[64] = {};
};

/// Values that change from step to step, in the memory of the run's device. The host writes them before a step;
/// clip_and_skip writes `decision`.
struct StepScalars {
  UpdateDecision decision;
  OptimizerScalars optimizer;
  double loss_scale = 0;      // 1 / valid tokens of the global batch, times gradient_scale
  double gradient_scale = 1;  // the loss scale: gradients come out multiplied by this power of two
  double max_grad_norm = 0;   // 0: no clipping
};

struct AccumulateNormArgs {
  std::int64_t* unit = nullptr;  // of a unit: counters of an ExactSum; set to 0
  std::int64_t* all = nullptr;   // total: counters of an ExactSum; the carried sum of the unit is added, on a device
                                 // atomically: two streams may add to one total
  std::int64_t* flag = nullptr;  // written: 1 if a term was not finite, else 0
};
void accumulate_norm(const AccumulateNormArgs& args, StreamView stream);

struct CarrySumsArgs {
  std::int64_t* counters = nullptr;  // of `sums` ExactSums, one after another
  int sums = 0;
};
/// ExactSum::carry() of each sum; before sums of ranks are added.
void carry_sums(const CarrySumsArgs& args, StreamView stream);

struct ClipAndSkipArgs {
  const std::int64_t* norm2 = nullptr;  // counters of an ExactSum: Σ g²
  const std::int64_t* loss = nullptr;   // counters of an ExactSum
  const std::int64_t* flags = nullptr;  // of each unit: ranks on which its gradient is not finite
  int units = 0;
  StepScalars* step = nullptr;
};
/// norm = √Σg² / gradient_scale; clip = min(1, max_grad_norm / (norm + 1e-6)) / gradient_scale, rounded to fp32; skip:
/// a sum or a gradient is not finite, or it was set before (a warm-up step). The same bits on host and device.
void clip_and_skip(const ClipAndSkipArgs& args, StreamView stream);

}  // namespace tessera::kernels
