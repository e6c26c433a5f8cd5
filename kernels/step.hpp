#pragma once
// What a step decides from its sums, where they are: whether it is finite, its gradient norm and the factor that clips
// it. On a device the host takes no part: AdamW reads there what is decided here.

#include "kernels/adamw.hpp"
#include "runtime/base/exact_sum.hpp"

namespace tessera::kernels {

/// What changes from step to step, in memory of the run's device. The host writes it before a step, clip_and_skip clip
/// and skip.
struct StepScalars {
  AdamWScalars adamw;
  double loss_scale = 0;      // 1 / valid tokens of the global batch, times gradient_scale
  double gradient_scale = 1;  // gradients come out multiplied by this power of two
  double max_grad_norm = 0;   // 0: no clipping
};

struct AccumulateNormArgs {
  std::int64_t* unit = nullptr;  // words of an ExactSum; all 0 after it
  std::int64_t* all = nullptr;   // words that they are added to
  std::int64_t* flag = nullptr;  // written: 1 if a term of the unit was not finite, else 0
};
void accumulate_norm(const AccumulateNormArgs& args, StreamView stream);

struct ClipAndSkipArgs {
  const std::int64_t* norm2 = nullptr;  // words of an ExactSum: Σ g²
  const std::int64_t* loss = nullptr;   // likewise
  const std::int64_t* flags = nullptr;  // of each unit: ranks on which its gradient is not finite
  int units = 0;
  StepScalars* step = nullptr;
};
/// norm = √Σg² / gradient_scale; clip = min(1, max_grad_norm / (norm + 1e-6)) / gradient_scale, rounded to fp32; skip =
/// something is not finite. The same bits as the host's executor makes of the same words.
void clip_and_skip(const ClipAndSkipArgs& args, StreamView stream);

}  // namespace tessera::kernels
