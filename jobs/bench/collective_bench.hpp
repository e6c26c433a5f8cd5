// SPDX-License-Identifier: Apache-2.0
#pragma once
// Times the collectives of these ranks and MPI's own, alternately in one run. Figures to read; no test asserts them.

#include <cstddef>
#include <cstdint>
#include <string>

#include "runtime/comm/world.hpp"

namespace tessera::jobs {

/// Seconds are medians over rounds of the slowest rank; both sides include one read of the result. `bytes`: the whole
/// buffer.
struct CollectiveBench {
  std::size_t bytes = 0;
  struct Times {
    double ours_s = 0, mpi_s = 0;
    double least_bytes = 0;  // that a host has to send; 0 on one host
    // Of one call, on the rank that has most; 0 where nothing goes by messages (message_count.hpp).
    std::uint64_t messages = 0, rounds = 0;
  };
  Times gather, reduce, all_reduce;  // MPI_Allgather, MPI_Reduce_scatter_block, MPI_Allreduce
  Times agreement;                   // World::require_equal of 4 KiB of text, as at a run's start; MPI has no such call
  double socket_bytes_per_s = 0;     // of TCP between hosts, both directions at once (socket_rate); 0: one host
  std::string socket_error;          // why there is no such rate between hosts
  double memcpy_bytes_per_s = 0;     // copy speed of one rank while all ranks copy
  double waiting_share = 0;  // share of a core that a rank's threads use while it waits a second for a late peer
};

/// Collective. `rounds` of each, after one that is not counted. Takes about four times `bytes` per rank. Throws Error
/// (usage) for a world of threads.
[[nodiscard]] CollectiveBench bench_collectives(World& world, std::size_t bytes, int rounds);

/// Collective. The first rank of each node sends `bytes` over TCP to that of the next node while it receives as many
/// from the one before it, all at once. Bytes per second of the slowest; 0 if there is one node. Throws Error
/// (data) on every rank if a node cannot be reached at any of its IPv4 addresses within ten seconds. The first address
/// that answers is taken, which need not be of the network that MPI uses.
[[nodiscard]] double socket_rate(World& world, std::size_t bytes);

}  // namespace tessera::jobs
