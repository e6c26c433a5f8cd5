// SPDX-License-Identifier: Apache-2.0
#pragma once
// The dtypes that the options ask to compute and to reduce gradients in.

#include <optional>
#include <string>

#include "jobs/cli/options/options.hpp"
#include "runtime/base/dtype.hpp"
#include "runtime/plan/plan.hpp"
#include "runtime/train/loss_scale.hpp"

namespace tessera::jobs {

struct Precision {
  DType compute = DType::f32;  // Model::dtype, ShardPolicy::param_dtype
  DType reduce = DType::f32;   // ShardPolicy::reduce_dtype
  /// "bf16, gradients reduced in fp32"; "fp32" if all is fp32.
  [[nodiscard]] std::string str() const;
};

/// The dtype that --mixed_precision, --bf16, --fp16 or --bnb_4bit_compute_dtype asks for; none: `auto`, which
/// decide_precision (default_precision.hpp) decides. Throws Error (usage) where they contradict each other.
[[nodiscard]] std::optional<DType> asked_compute(const Options& options);
/// Which option asks for it, or why it is the default: "--bf16: command line", "default: the weights are bf16", "auto:
/// from scratch on CPUs", "kept from out/checkpoint-20".
[[nodiscard]] std::string precision_source(const Options& options);

/// From --mixed_precision, which must be decided, --bf16, --fp16 and --reduce_dtype. Throws Error (usage) where they
/// contradict each other, or
/// --reduce_dtype is neither fp32, int8 (reduced in fp32, as compression_of says) nor the compute dtype. Generate and
/// eval do not look at --reduce_dtype.
[[nodiscard]] Precision precision_of(const Options& options);
/// From --reduce_dtype int8, --gather_dtype, --compress_axes and --error_feedback; nothing for generate and eval.
[[nodiscard]] shard::Compression compression_of(const Options& options);
/// --reduce_dtype: "int8", "bf16", …
[[nodiscard]] const char* reduce_name(const shard::ShardPolicy& policy);
/// Precision::str(), and what is sent in int8: "fp32, gradients reduced in int8 with error feedback between nodes".
[[nodiscard]] std::string precision_text(const plan::RunPlan& plan);
/// None unless the run computes in fp16, or if that is not decided yet. Throws Error (usage): --min_loss_scale is no
/// power of two or above the initial scale; loss-scale options on the command line of a run that is not fp16.
[[nodiscard]] std::optional<train::LossScaleOptions> loss_scale_of(const Options& options);

}  // namespace tessera::jobs
