// SPDX-License-Identifier: Apache-2.0
#pragma once
// The resources of a run: cores for its threads, memory for its plan.

#include <string>

#include "jobs/cli/options/options.hpp"
#include "jobs/cli/session/cpu_binding.hpp"
#include "jobs/cli/session/host_info.hpp"
#include "runtime/comm/world.hpp"
#include "runtime/plan/plan.hpp"

namespace tessera::jobs {

/// Warns if ranks share cores (W021), and if OpenBLAS is the serial build but a rank has several threads (W022).
void warn_about_threads(const ThreadAllocation& share);
/// Collective. Warns of kernels of OpenBLAS that are far below a rank's CPU (W059), naming the host of the first such
/// rank.
void warn_about_blas_kernel(World& world);
/// Prints binding_findings.
void warn_about_binding(const std::vector<RankBinding>& ranks);

/// Collective. Sets this rank's number of threads by --threads; warns about them, about OpenBLAS (W059), about the
/// binding of the ranks (W054 to W056, W064), of torchrun's variables (W065), and of options without effect (W024).
ThreadAllocation set_rank_threads(const Options& options, World& world);

/// A rank's GPU, in bytes.
struct GpuMemory {
  std::uint64_t process = 0;  // in use by this process: by the driver, context and libraries included, where it says
                              // so; else what `measured` has on the device
  std::uint64_t card = 0;     // in all
};
/// Zeros for the host.
[[nodiscard]] GpuMemory gpu_memory(Device device, const MemoryTable& measured);

/// Bytes of a GPU's free memory that a run of `ranks` leaves to what its plan does not contain: code of kernels,
/// cuBLASLt with its workspaces, cuDNN; over NCCL what it takes beyond the plan's estimate. The CUDA context is no part
/// of it: it exists when free memory is read.
[[nodiscard]] std::uint64_t gpu_reserve(Transport transport, int ranks);
/// Collective. The memory that every rank may use: --device_memory, or its share of what is free, on the GPU less
/// gpu_reserve, or on the host. Read before the run allocates: other processes' memory is not free.
[[nodiscard]] std::uint64_t memory_limit(const Options& options, World& world, const plan::RunSpec& spec);

/// Collective. Returns the memory that a rank may use; throws Error (does_not_fit) if the plan needs more.
std::uint64_t require_fit(const Options& options, World& world, const plan::RunPlan& plan, const std::string& to_do);

}  // namespace tessera::jobs
