// SPDX-License-Identifier: Apache-2.0
#pragma once
// The dtype in which a run computes where no option says it: that of the model's weights, or of a run from scratch.

#include <optional>
#include <string>

#include "jobs/cli/options/options.hpp"
#include "jobs/cli/session/setup.hpp"
#include "runtime/base/dtype.hpp"
#include "runtime/comm/world.hpp"

namespace tessera::jobs {

/// All that decides the default.
struct PrecisionFacts {
  bool from_scratch = false;      // no weights to start from
  bool on_gpu = false;            // GPUs compute in 16 bits: those that do not are refused
  bool has_bf16 = false;          // every rank's GPU or CPU has instructions of bf16, and they are in use
  bool bf16_is_off = false;       // --bf16 false
  std::optional<DType> stored{};  // the dtype of most elements of the weights; of a checkpoint, which is fp32, the one
                                  // that its run computed in; none: unknown, or quantized
  std::optional<DType> named{};   // what config.json says: "dtype", "torch_dtype"; quantized, the one to compute in
  bool trained = false;           // `stored` is of a checkpoint
};

struct DefaultPrecision {
  DType compute = DType::f32;
  std::string why;          // "the weights are bf16"
  int warning = 0;          // W068, W069; 0: none
  std::string warned = {};  // its text
};
/// Pure. A run from scratch computes in bf16 on GPUs, in fp32 on CPUs. Otherwise
/// the model's own: weights in fp32 are computed with in fp32, in bf16 in bf16, in fp16 in bf16 (W068); in fp32 where
/// some rank has no bf16 instructions. What the weights are counts more than what config.json says of them (W069).
[[nodiscard]] DefaultPrecision default_precision(const PrecisionFacts& facts);

/// True if bf16 GEMMs on this rank's CPU use its instructions for them (AVX512-BF16, AMX-BF16).
[[nodiscard]] bool cpu_has_bf16();

/// Where the run computes.
struct PrecisionPlace {
  bool on_gpu = false, has_bf16 = false;
};

/// Sets --mixed_precision where it is left to the program (asked_compute), its source's text to why, and checks the
/// options again that depend on it. Reads the headers of the weights. Without weights, a run of stage sft is taken for
/// one of weights as config.json says. Throws Error (data: of the weights; usage). One process.
void decide_precision(Options& options, const ModelConfig& config, const PrecisionPlace& place);
/// Collective: the same, decided by rank 0.
void decide_precision(Options& options, const ModelConfig& config, World& world);

}  // namespace tessera::jobs
