// SPDX-License-Identifier: Apache-2.0
#pragma once
// Times this world's collectives and MPI's own, in turns in one run. Figures to read; no test asserts them.

#include <cstddef>

#include "runtime/comm/world.hpp"

namespace tessera {

/// Seconds are medians over rounds of the slowest rank; both sides include one read of the result. `bytes`: the whole
/// buffer.
struct CollectiveBench {
  std::size_t bytes = 0;
  int rounds = 0;
  double gather_s = 0, mpi_gather_s = 0;  // ours over the world; MPI_Allgather
  double reduce_s = 0, mpi_reduce_s = 0;  // reduce-scatter; MPI_Reduce_scatter_block
  double memcpy_bytes_per_s = 0;          // copy speed of one rank while all ranks copy
  double waiting_share = 0;  // share of a core that a rank's threads use while it waits a second for a late peer
};

/// Collective. Takes about four times `bytes` per rank. Throws Error (usage) for a world of threads.
[[nodiscard]] CollectiveBench bench_collectives(World& world, std::size_t bytes);

}  // namespace tessera
