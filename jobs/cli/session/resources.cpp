// SPDX-License-Identifier: Apache-2.0
#include "jobs/cli/session/resources.hpp"

#include <algorithm>
#include <cstdlib>

#include "jobs/cli/session/blas_kernel.hpp"
#include "jobs/cli/session/versions.hpp"
#include "kernels/threads.hpp"
#include "runtime/base/device_info.hpp"
#include "runtime/base/log.hpp"
#include "runtime/comm/launcher_environment.hpp"

namespace tessera::jobs {

void warn_about_threads(const ThreadAllocation& share) {
  if (share.overcommitted)
    log::warn(
        21,
        "ranks share cores: they have more threads than cores in their affinity masks; start fewer ranks, bind each to "
        "its own cores, or lower --threads");
  if (blas_is_serial() && share.threads > 1)
    log::warn(
        22,
        "the serial build of OpenBLAS is loaded (" + blas_library() +
            "): it runs one call at a time, so the threads of a rank wait for each other; install the pthread build");
}

void warn_about_blas_kernel(World& world) {
  const std::string finding = blas_kernel_finding();
  for (const std::string& text : world.gather(finding.empty() ? "" : world.host() + ": " + finding)) {
    if (text.empty()) continue;
    log::warn(59, text);
    return;
  }
}

void warn_about_binding(const std::vector<RankBinding>& ranks) {
  for (const BindingFinding& finding : binding_findings(ranks)) log::warn(finding.warning, finding.text);
}

namespace {

/// Started as torchrun's users do, NPROC_PER_NODE=2 tessera sft …, a run has one rank.
void warn_of_torchrun_variables() {
  if (*launcher_environment().size_variable != '\0') return;
  for (const char* name : {"NPROC_PER_NODE", "PET_NPROC_PER_NODE"})
    if (const char* text = std::getenv(name); text != nullptr && *text != '\0' && std::string(text) != "1")
      log::warn(65, std::string(name) + "=" + text +
                        " starts no ranks here, this run has one: `tessera launch -- COMMAND …` follows it");
}

}  // namespace

ThreadAllocation set_rank_threads(const Options& options, World& world) {
  ThreadAllocation share = allocate_threads(world, static_cast<int>(options.optional_integer("threads").value_or(0)));
  kernels::set_threads(share.threads);
  warn_about_threads(share);
  warn_about_blas_kernel(world);
  if (const std::vector<RankBinding> ranks = gather_bindings(world); world.rank() == 0) {
    share.binding = binding_summary(ranks);
    warn_about_binding(ranks);
    warn_of_torchrun_variables();
  }
  return share;
}

GpuMemory gpu_memory(Device device, const MemoryTable& measured) {
  if (device == host_device) return {};
  const DeviceMemory now = device_memory(device);
  // A driver that says less means another process: one of another container may have this one's number.
  return {std::max<std::uint64_t>(now.process.value_or(0), measured.by_memory[static_cast<int>(Memory::device)]),
          now.total};
}

std::uint64_t gpu_reserve(Transport transport, int ranks) {
  constexpr std::uint64_t mib = std::uint64_t{1} << 20;
  return (768 + (transport == Transport::nccl && ranks > 1 ? 512 : 0)) * mib;
}

namespace {

/// This rank's share of what is free on its GPU. Ranks that share one have their contexts, and nothing more, when any
/// of them reads.
std::uint64_t free_on_gpu(World& world, const plan::RunSpec& spec) {
  (void)device_memory(spec.device);
  world.barrier();
  const std::uint64_t share = device_memory(spec.device).free / static_cast<std::uint64_t>(world.ranks_on_device());
  return share - std::min(share, gpu_reserve(world.topology().transport, world.size()));
}

}  // namespace

std::uint64_t memory_limit(const Options& options, World& world, const plan::RunSpec& spec) {
  const std::uint64_t mine = options.has("device_memory") ? options.bytes("device_memory")
                             : spec.device != host_device
                                 ? free_on_gpu(world, spec)
                                 : host_memory().available / static_cast<std::uint64_t>(world.ranks_on_device());
  return static_cast<std::uint64_t>(-world.max(-static_cast<std::int64_t>(mine)));
}

std::uint64_t require_fit(const Options& options, World& world, const plan::RunPlan& plan, const std::string& to_do) {
  const std::uint64_t limit = memory_limit(options, world, plan.spec);
  const auto needed = static_cast<std::uint64_t>(world.max(static_cast<std::int64_t>(plan::memory_needed(plan))));
  const shard::StatePlacement& placement = plan.spec.strategy.policy.placement;
  const bool on_host = placement.optimizer == shard::Tier::host || placement.params == shard::Tier::host ||
                       plan.spec.strategy.policy.activations == shard::Tier::host;
  if (plan.spec.device == host_device && on_host)
    log::warn(
        35,
        "--offload_optimizer, --offload_params, --offload_activations without a GPU: what is offloaded is copied to "
        "and "
        "from host memory beside the run's own, which is host memory too: this saves nothing but what --device_memory "
        "counts");
  if (needed <= limit) return limit;
  throw Error(ExitCode::does_not_fit,
              strfmt("a rank needs %s, but may use %s", human_bytes(needed).c_str(), human_bytes(limit).c_str()),
              options.has("device_memory") ? "--device_memory: " + options.value("device_memory").source.text
              : plan.spec.device != host_device
                  ? "memory free on the GPU / the ranks that share it, less " +
                        human_bytes(gpu_reserve(world.topology().transport, world.size())) + " for libraries"
                  : "memory available on the node / its ranks",
              to_do);
}

}  // namespace tessera::jobs
