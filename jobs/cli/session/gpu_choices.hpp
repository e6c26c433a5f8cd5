#pragma once
// What a run on devices chooses before its first step: whose kernels compute attention (--attention), and by which
// algorithms the library makes products (--gemm_choice), with the file that keeps them.

#include <string>

#include "jobs/cli/options/options.hpp"
#include "runtime/train/trainer.hpp"

namespace tessera::jobs {

/// By --attention; before a run on `device` is planned, which needs neither library nor device. What is to be measured
/// is planned with what either needs. Throws Error (usage) where the options ask for a device's kernels and this one is
/// the host.
void choose_attention(const Options& options, Device device);
/// Collective, before the trainer is made: choose_attention for the world's device. Throws Error (usage) on every
/// rank where a device, its library or the build lacks what the options ask for; what they ask to be measured
/// where it is found may be missing.
void check_gpu_choices(const Options& options, World& world);

struct WarmUpRun {
  const Options* options = nullptr;
  World* world = nullptr;
  train::Trainer* trainer = nullptr;
  train::WarmupArgs step;
};
/// Collective, before the first step. Rehearses it where something is chosen; reads and writes the file of products on
/// rank 0. Returns how attention and products are computed, for people; "" on the CPU. Throws Error (usage: a file for
/// another device, attention that cuDNN does not take; data: a damaged file, or one that cannot be written) on every
/// rank alike.
[[nodiscard]] std::string choose_gpu_kernels(const WarmUpRun& run);

}  // namespace tessera::jobs
