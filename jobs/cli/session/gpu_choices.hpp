// SPDX-License-Identifier: Apache-2.0
#pragma once
// What a run on GPUs chooses before its first step: the attention kernels (--attention) and cuBLASLt's algorithm for
// each GEMM (--gemm_choice), with the file that keeps the latter.

#include <string>

#include "jobs/cli/options/options.hpp"
#include "runtime/train/trainer.hpp"

namespace tessera::jobs {

/// Applies --attention, before a run on `device` is planned and after decide_precision; needs neither cuDNN nor a GPU.
/// For `measured` the plan has the memory of both kernels. Throws Error (usage) where the options ask for GPU kernels
/// and `device` is the host.
void choose_attention(const Options& options, Device device);
/// Collective, before the trainer is made: choose_attention for the world's device. Throws Error (usage) on every rank
/// if a rank's GPU, its libraries or the build lack what the options name; `measured` falls back to what there is.
void check_gpu_choices(const Options& options, World& world);

struct WarmUpRun {
  const Options* options = nullptr;
  World* world = nullptr;
  train::Trainer* trainer = nullptr;
  train::WarmupArgs step;
};
/// Collective, before the first step. On GPUs at least one warm-up step runs, which loads the kernels; more where
/// something is to be measured. Rank 0 reads and writes the file of algorithms. Returns how attention and GEMMs are
/// computed, for the log; "" on the CPU. Throws Error on every rank (usage: a file for another GPU, attention that
/// cuDNN cannot compute; data: a damaged or unwritable file).
[[nodiscard]] std::string choose_gpu_kernels(const WarmUpRun& run);
/// Warns, once for each reason, if cuDNN was chosen by `auto` or `measured` and has refused attention of this rank
/// since: our kernels computed it.
void warn_of_refused_attention();

}  // namespace tessera::jobs
