#pragma once
// From options to the types a run computes and reduces in.

#include <optional>
#include <string>

#include "jobs/cli/options/options.hpp"
#include "runtime/base/dtype.hpp"
#include "runtime/train/loss_scale.hpp"

namespace tessera::jobs {

struct Precision {
  DType compute = DType::f32;  // Model::dtype, ShardPolicy::param_dtype
  DType reduce = DType::f32;   // ShardPolicy::reduce_dtype
  /// "bf16, reduced in fp32"; "" where all is fp32.
  [[nodiscard]] std::string str() const;
};

/// Of --mixed_precision, --bf16, --fp16 and --reduce_dtype. Throws Error (usage) where they contradict each other, or a
/// type is reduced in that is not computed in. generate and eval: all fp32.
[[nodiscard]] Precision precision_of(const Options& options);
/// None where nothing is computed in fp16. Throws Error (usage): a floor that is no power of two or above the start;
/// options of fp16 on the command line of another run.
[[nodiscard]] std::optional<train::LossScaleOptions> loss_scale_of(const Options& options);

}  // namespace tessera::jobs
