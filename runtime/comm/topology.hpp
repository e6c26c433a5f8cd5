#pragma once
// What a transport costs: pure functions of the mesh, the node width and the sizes, which the planner prints and tests hold
// against what communicators count.

#include <cstddef>
#include <cstdint>

#include "runtime/comm/communicator.hpp"
#include "runtime/comm/mesh.hpp"

namespace tessera {

enum class Transport : unsigned char { mpi, node, local };
[[nodiscard]] const char* name_of(Transport transport);

/// Which transport serves the run, and how many consecutive ranks make a node.
struct Topology {
  Transport transport = Transport::mpi;
  int ranks_per_node = 1;
  bool local_copies = false;  // local transport only: behave as mpi does (no shared memory), for tests

  /// True if the whole group of `rank` along `axis` shares memory, so that gathered buffers are the master shards.
  [[nodiscard]] bool in_place(const Mesh& mesh, Axis axis) const;
};

enum class CollectiveKind : unsigned char { all_gather, reduce_scatter, all_reduce };

/// Bytes that `rank` sends for one collective over `bytes` (the whole, padded buffer: size·chunk) along `axis`.
/// Over shared memory a byte read from a peer's memory counts as sent within the node by the reader's peer group alike:
/// gather in place 0, reduce_scatter (S-1)/S·bytes read.
[[nodiscard]] TrafficCount traffic(const Topology&, const Mesh&, Axis, int rank, CollectiveKind, std::uint64_t bytes);

/// Scratch that the communicator of `axis` needs when the largest buffer reduced or gathered over it has `bytes`.
[[nodiscard]] std::size_t staging_bytes(const Topology&, const Mesh&, Axis, int rank, std::uint64_t bytes);

}  // namespace tessera
