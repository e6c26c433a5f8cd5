// SPDX-License-Identifier: Apache-2.0
// Run by mpirun: trains on a device, over staged MPI or NCCL, and compares with host ranks as threads, or with PyTorch.
//   device_runs TRANSPORT simulated|real steps|mesh|experts|golden|int8|waits …      TRANSPORT: mpi | nccl
// simulated: equal to the host bit for bit. real: losses within a tolerance, ZeRO stages equal bit for bit. Exits 0 if
// all is well, 77 without a device, or over NCCL with fewer devices than ranks on this host.

#include <cstdio>
#include <cstdlib>
#include <string>

#include "kernels/threads.hpp"
#include "runtime/base/cuda/devices.hpp"
#include "runtime/base/error.hpp"
#include "tests/train/device/device_runs.hpp"
#include "tests/train/device/no_device.hpp"

/// True, with a line that says so, if NCCL's ranks of this host have fewer devices than one each.
static bool lacks_devices() {
  if constexpr (tessera::cuda_built) {
    const char* const ranks = std::getenv("OMPI_COMM_WORLD_LOCAL_SIZE");
    const std::size_t wanted = ranks != nullptr ? static_cast<std::size_t>(std::atoi(ranks)) : 1;
    const auto& survey = tessera::cuda::survey();
    if (survey.devices.size() >= wanted) return false;
    std::printf("skipped: %zu devices, %zu wanted. %s\n", survey.devices.size(), wanted, survey.why_none.c_str());
    return true;
  }
  return false;
}

namespace tessera::test {
/// The number of differences that this rank has found.
static int run(World& world, const std::string& what, Truth truth) {
  if (what == "golden") return golden_curves(world, truth);
  if (what == "waits") return wait_order(world);
  if (what == "int8") return compressed(world, truth);
  if (what == "mesh") return against_host_on_a_mesh(world, truth);
  if (what == "experts") return experts(world, truth);
  if (what == "steps")
    return against_host(world, truth) + library_attention(world, truth) + save_asynchronously(world) + trace(world) +
           sums_at_the_bound(world) + warm_up(world, truth);
  throw Error(ExitCode::usage, "'" + what + "' is none of steps, mesh, experts, golden, int8, waits");
}
}  // namespace tessera::test

int main(int argc, char** argv) {
  using namespace tessera;
  if (argc < 4) return 2;
  const bool nccl = std::string(argv[1]) == "nccl", simulated = std::string(argv[2]) == "simulated";
  if (nccl && !simulated && lacks_devices()) return 77;
  kernels::set_threads(1);
  try {
    const auto world = bootstrap({.comm = nccl ? WorldOptions::Comm::nccl : WorldOptions::Comm::mpi,
                                  .backend = WorldOptions::Backend::cuda,
                                  .comm_timeout_s = 60});
    const test::Truth truth = simulated ? test::Truth::exact : test::Truth::near;
    int differences = 0;
    for (int i = 3; i < argc; ++i) {
      const int wrong = static_cast<int>(world->max(test::run(*world, argv[i], truth)));
      differences += wrong;
      if (world->rank() == 0)
        std::printf("%d ranks, transport %s, device %s, %s: %d differences\n", world->size(), argv[1], argv[2], argv[i],
                    wrong);
    }
    return differences == 0 ? 0 : 1;
  } catch (const Error& error) { return test::exit_code_of(error); }
}
