// SPDX-License-Identifier: Apache-2.0
#pragma once
// Cost of each transport, in bytes: pure functions of mesh, ranks per node and sizes. The planner prints them; tests
// compare them with what the communicators count.

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "runtime/comm/communicator.hpp"
#include "runtime/comm/mesh.hpp"
#include "runtime/comm/node_members.hpp"

namespace tessera {

enum class Transport : unsigned char { mpi, node, local, nccl };
[[nodiscard]] const char* name_of(Transport transport);

/// The transport of a run, and how many consecutive ranks share a node.
struct Topology {
  Transport transport = Transport::mpi;
  int ranks_per_node = 1;
  bool local_copies = false;  // transport local only, for tests: no shared memory, as with mpi
  bool staged = false;        // device memory over a host transport, through pinned buffers (device/staged.hpp)

  /// True if every group along `axes` lies on one node and shares memory: gathered buffers are then the master shards.
  [[nodiscard]] bool in_place(const Mesh& mesh, AxisSet axes) const;
  /// True if the members of a group along `axes` are on several nodes.
  [[nodiscard]] bool spans_nodes(const Mesh& mesh, AxisSet axes) const;
};

enum class CollectiveKind : unsigned char { all_gather, all_to_all, reduce_scatter, all_reduce };

/// Bytes that a member of a group sends for one collective over `bytes` (the whole padded buffer). S members, chunks of
/// c = bytes / S, L members on this node. A byte that a rank reads from a peer's shared memory counts as sent within
/// the node. An all_reduce is a reduce_scatter, then an all_gather.
///   mpi        (S-1)c in all. Up to 8 members c to each of the others. Beyond: a reduce_scatter as reduction_tree.hpp
///              says, to the 7 nearest members first, then sums to farther ones; an all_gather min(h, S-h)c to the
///              member h behind, h = 1, 2, 4, …; an all_to_all c to each of the others.
///   node, all members on one node: (S-1)c read by a reduce_scatter and by an all_gather that is not in place; 0 for an
///              all_gather in place.
///   node, members on several nodes (two-level): only the node's leader sends to other nodes. all_gather: L·c to each
///              other node, (S-L)c in all. reduce_scatter: one sum for each of the S-L chunks owned elsewhere, or L
///              operands where the node's members are no subtree of the counter tree. Within the node every rank reads
///              (L-1)c, and the others hand to the leader what it sends and read what it received.
///              all_to_all: L·c to each of the S-L members elsewhere.
///   nccl       the ring algorithm: (S-1)c to the next member, which lies on another node for one member per node; an
///              all_to_all c to each of the others.
class GroupCosts {
 public:
  /// `member`: its coordinate in the group.
  [[nodiscard]] TrafficCount traffic(int member, CollectiveKind kind, std::uint64_t bytes) const;
  /// The same for a reduce_scatter or all_reduce of `numel` elements of `dtype`. Sums are fp32: two-level transports
  /// widen before they send, and the all_gather of an all_reduce moves fp32.
  [[nodiscard]] TrafficCount sum_traffic(int member, CollectiveKind kind, std::uint64_t numel, DType dtype) const;
  /// The same for an all_reduce of int64 counters.
  [[nodiscard]] TrafficCount counters_traffic(int member, std::uint64_t count) const;
  /// Of collectives of block-wise int8 (int8_collectives.hpp): `bytes`, of the encoded chunks of all members, are
  /// exchanged (reduce_scatter), gathered into a buffer of the rank (all_gather), or both (all_reduce).
  [[nodiscard]] TrafficCount int8_traffic(int member, CollectiveKind kind, std::uint64_t bytes) const;
  /// An all_gather into a full buffer of the rank's own, even over shared memory.
  [[nodiscard]] TrafficCount copied_gather(int member, std::uint64_t bytes) const;

 private:
  friend class AxisCosts;
  GroupCosts(const Topology& topology, std::span<const int> members, bool in_place);
  [[nodiscard]] const comm::NodeMembers& node_of(int member) const;
  [[nodiscard]] TrafficCount direct(int member, std::uint64_t bytes) const;
  [[nodiscard]] TrafficCount sent(int member, int to, std::uint64_t bytes) const;
  [[nodiscard]] TrafficCount ring(int member, std::uint64_t bytes) const;
  // Over messages (endpoint.hpp).
  [[nodiscard]] bool by_messages() const;
  [[nodiscard]] TrafficCount gather_by_messages(int member, std::uint64_t chunk) const;
  [[nodiscard]] TrafficCount reduce_by_messages(int member, std::uint64_t term, std::uint64_t sum) const;
  [[nodiscard]] TrafficCount counters_by_messages(int member, std::uint64_t bytes) const;
  [[nodiscard]] TrafficCount two_level(int member, std::uint64_t chunk, CollectiveKind kind) const;
  [[nodiscard]] TrafficCount all_reduce(int member, std::uint64_t bytes) const;

  Topology topology_;
  bool in_place_;
  std::vector<comm::NodeMembers> nodes_;
  std::uint64_t size_, operands_ = 0;
};

/// Costs of the groups along `axes`.
class AxisCosts {
 public:
  AxisCosts(const Topology& topology, const Mesh& mesh, AxisSet axes)
      : topology_(topology), mesh_(mesh), axes_(axes), in_place_(topology.in_place(mesh, axes)) {}
  /// Those of the group of `rank`. Takes time and memory of O(its members).
  [[nodiscard]] GroupCosts group(int rank) const;

 private:
  Topology topology_;
  Mesh mesh_;
  AxisSet axes_;
  bool in_place_;
};

/// Load of the network along some axes, all of their groups together.
///   busiest_rank  most bytes that one rank sends, to its own node and to others.
///   node_uplink   most bytes that the ranks of one node send to other nodes: what the node's network cards carry.
/// With K groups side by side on a node, each of S members, L of them on each node, an all_gather of S·c loads an
/// uplink with
///   ring (nccl)          K·(S-1)c: one edge of each ring leaves the node and carries (S-1)/S of the buffer. NCCL's
///                        channels spread it over the node's ranks and cards; their sum is the same.
///   two-level (node)     K·(S-L)c, where the node's members are a subtree
///   mpi                  K·L·(S-L)c; beyond 8 members K·(S-L)c of a reduce_scatter if L is 8, 64, …: sums leave a node
/// A reduce_scatter loads it alike otherwise, an all_reduce twice. One rank does not show this: the ring neighbor of
/// most ranks is on their own node.
struct AxisLoad {
  std::uint64_t busiest_rank = 0, node_uplink = 0;
  friend bool operator==(const AxisLoad&, const AxisLoad&) = default;
};
/// `ranks`: what each rank of the world sends, in rank order.
[[nodiscard]] AxisLoad axis_load(std::span<const TrafficCount> ranks, int ranks_per_node);

/// Scratch that the communicator along `axes` needs when the largest buffer reduced or gathered over it has `bytes`.
[[nodiscard]] std::size_t staging_bytes(const Topology&, const Mesh&, AxisSet, int rank, std::uint64_t bytes);

/// Memory that the communicator along `axes` allocates for itself when it is made, as charged to `rank`.
///   node, local  shared scratch, exactly.
///   mpi          0.
///   nccl         device memory, an estimate, since NCCL decides at run time:
///                channels × neighbors × (receive buffer + send buffer).
///     - 24 channels: what NCCL takes over the NVSwitch of A100 (github.com/NVIDIA/nccl-tests/issues/100); fewer over
///       PCIe.
///     - Neighbors in rings, and in trees within a node: two; one if the group is a pair.
///     - Receive buffer: Simple 4 MiB (NCCL_BUFFSIZE) + LL128 120·640·8·8 B + LL 8·512·8·16 B = 9.19 MiB (src/init.cc,
///       2.28), allocated as 10 MiB. Send buffer: 2 MiB on the same node, 10 MiB to another node, whose network proxy
///       sends from a buffer of its own. github.com/NVIDIA/nccl/issues/1685 shows both sizes of allocations.
///     - Not included: NVLS buffers, the CUDA context. NCCL_MAX_NCHANNELS and NCCL_BUFFSIZE lower it.
[[nodiscard]] std::size_t transport_bytes(const Topology&, const Mesh&, AxisSet, int rank);

namespace comm {
/// Bytes of `members` encoded chunks of `chunk` numbers: what GroupCosts::int8_traffic takes.
[[nodiscard]] std::size_t int8_group_bytes(std::size_t members, std::size_t chunk);
}  // namespace comm

}  // namespace tessera
