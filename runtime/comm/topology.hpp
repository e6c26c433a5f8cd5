#pragma once
// What a transport costs: pure functions of the mesh, the node width and the sizes, which the planner prints and tests
// hold against what communicators count.

#include <cstddef>
#include <cstdint>

#include "runtime/comm/communicator.hpp"
#include "runtime/comm/mesh.hpp"

namespace tessera {

enum class Transport : unsigned char { mpi, node, local, nccl };
[[nodiscard]] const char* name_of(Transport transport);

/// Which transport serves the run, and how many consecutive ranks make a node.
struct Topology {
  Transport transport = Transport::mpi;
  int ranks_per_node = 1;
  bool local_copies = false;  // local transport only: behave as mpi does (no shared memory), for tests
  bool staged = false;        // device memory over a transport of the host: through pinned staging (device/staged.hpp)

  /// True if the whole group of `rank` along `axis` shares memory, so that gathered buffers are the master shards.
  [[nodiscard]] bool in_place(const Mesh& mesh, Axis axis) const;
};

enum class CollectiveKind : unsigned char { all_gather, reduce_scatter, all_reduce };

/// Bytes that `rank` sends for one collective over `bytes` (the whole, padded buffer: size·chunk) along `axis`.
/// Over shared memory, a byte that a rank reads where a peer put it counts as sent within the node:
/// - node: gather in place 0, reduce_scatter (S-1)·chunk read; the gather of an all_reduce is not in place:
/// (S-1)·chunk.
/// - two-level, L ranks of the axis on this node: across nodes only the leader sends, L·chunk to
/// each other node in a gather, and
///   in a reduce-scatter for every rank elsewhere one sum (L a subtree of the counter tree) or L terms; within the node
///   each rank moves its peers' (L-1)·chunk, and those who are not the leader what they give it to send and take of
///   what it received.
/// - nccl: what a ring sends, (S-1)·chunk to the next member, whatever algorithm it takes.
[[nodiscard]] TrafficCount traffic(const Topology&, const Mesh&, Axis, int rank, CollectiveKind, std::uint64_t bytes);
/// The same of a reduce_scatter or all_reduce of `numel` terms of a type. Their sums are fp32: a two-level transport,
/// which sends sums, widens before; and what an all_reduce gathers is fp32.
[[nodiscard]] TrafficCount sum_traffic(const Topology&, const Mesh&, Axis, int rank, CollectiveKind,
                                       std::uint64_t numel, DType dtype);
/// The same of all_reduce(words).
[[nodiscard]] TrafficCount counters_traffic(const Topology&, const Mesh&, Axis, int rank, std::uint64_t words);

/// Scratch that the communicator of `axis` needs when the largest buffer reduced or gathered over it has `bytes`.
[[nodiscard]] std::size_t staging_bytes(const Topology&, const Mesh&, Axis, int rank, std::uint64_t bytes);
/// Node-shared scratch that the communicator of `axis` allocates for itself when it is made, as charged to `rank`.
[[nodiscard]] std::size_t transport_bytes(const Topology&, const Mesh&, Axis, int rank);

}  // namespace tessera
