#pragma once
// How fast this world's collectives are beside MPI's own, in one run. Figures for people; no test is timed by it.

#include <cstddef>

#include "runtime/comm/world.hpp"

namespace tessera {

/// Seconds are medians over rounds of the slowest rank, one read of the result included on both
/// sides; `bytes` is the whole buffer.
struct CollectiveBench {
  std::size_t bytes = 0;
  int rounds = 0;
  double gather_s = 0, mpi_gather_s = 0;  // ours along the world; MPI_Allgather
  double reduce_s = 0, mpi_reduce_s = 0;  // reduce-scatter; MPI_Reduce_scatter_block
  double memcpy_bytes_per_s = 0;          // of one rank, all ranks at once: bytes copied, not read plus written
  double waiting_share = 0;  // of a core, that a rank burns (all its threads) while it waits a second for a late peer
};

/// Collective. Only for a world of processes (bootstrap); throws Error (usage) otherwise. Takes
/// about four times `bytes` per rank.
[[nodiscard]] CollectiveBench bench_collectives(World& world, std::size_t bytes);

}  // namespace tessera
