// SPDX-License-Identifier: Apache-2.0
// Cost formulas of the transports. Tests compare them with what the communicators count.
#include "runtime/comm/topology.hpp"

#include <algorithm>
#include <functional>

#include "runtime/comm/device/staged.hpp"
#include "runtime/comm/message_rounds.hpp"
#include "runtime/comm/node_members.hpp"
#include "runtime/comm/reduction_tree.hpp"

namespace tessera {

namespace comm {

std::vector<NodeMembers> split_by_node(std::span<const int> members, int ranks_per_node) {
  std::vector<NodeMembers> node_members;
  int node = -1;
  for (std::size_t i = 0; i < members.size(); ++i) {
    const int here = members[i] / std::max(1, ranks_per_node);
    if (here != node) node_members.push_back({static_cast<int>(i), 0});
    node = here;
    ++node_members.back().count;
  }
  return node_members;
}

std::size_t node_index_of(const std::vector<NodeMembers>& node_members, int member) {
  const auto after = std::upper_bound(node_members.begin() + 1, node_members.end(), member,
                                      [](int m, const NodeMembers& node) { return m < node.first; });
  return static_cast<std::size_t>(after - node_members.begin()) - 1;
}

static std::size_t round_down(std::size_t bytes) { return std::max<std::size_t>(64, bytes / 64 * 64); }

std::size_t gather_slice(const std::vector<NodeMembers>& node_members) {
  int members = 0, narrowest = node_members.front().count;
  for (const auto& node : node_members) {
    members += node.count;
    narrowest = std::min(narrowest, node.count);
  }
  return round_down(two_level_scratch * static_cast<std::size_t>(narrowest) / static_cast<std::size_t>(2 * members));
}

std::size_t reduce_slice(const std::vector<NodeMembers>& node_members) {
  // Per byte of a slice, the scratch of a node with L members holds L·L own operands, twice L·widest to send, and twice
  // L·(operands received from other nodes).
  int operands = 0, widest = 0, most = 0;
  for (const auto& node : node_members) {
    operands += node.operands();
    widest = std::max(widest, node.count);
  }
  for (const auto& node : node_members) most = std::max(most, node.count + 2 * (widest + operands - node.operands()));
  return round_down(two_level_scratch / static_cast<std::size_t>(most));
}

std::size_t exchange_slice(const std::vector<NodeMembers>& node_members) {
  // A node with L members holds L·widest slices to send and as many received.
  int widest = 0;
  for (const auto& node : node_members) widest = std::max(widest, node.count);
  return round_down(two_level_scratch / static_cast<std::size_t>(2 * widest));
}

}  // namespace comm

using comm::split_by_node;

const char* name_of(Transport transport) {
  static constexpr const char* names[] = {"mpi", "node", "local", "nccl"};
  return names[static_cast<int>(transport)];
}

static bool shared(const Topology& t) {
  return t.transport == Transport::node || (t.transport == Transport::local && !t.local_copies);
}

bool Topology::in_place(const Mesh& mesh, AxisSet axes) const {
  return shared(*this) && !staged && !spans_nodes(mesh, axes);
}

bool Topology::spans_nodes(const Mesh& mesh, AxisSet axes) const {
  // Members are ascending, and groups differ by a shift: one is on one node if its first and last member are.
  const auto group = mesh.members(0, axes);
  const int width = std::max(1, ranks_per_node), span = group.back() - group.front();
  for (int rank = 0; rank < mesh.world(); ++rank)
    if (mesh.coordinate(rank, axes) == 0 && rank / width != (rank + span) / width) return true;
  return false;
}

GroupCosts::GroupCosts(const Topology& topology, std::span<const int> members, bool in_place)
    : topology_(topology),
      in_place_(in_place),
      nodes_(split_by_node(members, std::max(1, topology.ranks_per_node))),
      size_(members.size()) {
  for (const auto& node : nodes_) operands_ += static_cast<std::uint64_t>(node.operands());
}

const comm::NodeMembers& GroupCosts::node_of(int member) const { return nodes_[comm::node_index_of(nodes_, member)]; }

/// The member sends `bytes` to each other member.
TrafficCount GroupCosts::direct(int member, std::uint64_t bytes) const {
  const auto local = static_cast<std::uint64_t>(node_of(member).count);
  return {(local - 1) * bytes, (size_ - local) * bytes, 0};
}

/// The member sends `bytes` to member `to`.
TrafficCount GroupCosts::sent(int member, int to, std::uint64_t bytes) const {
  return &node_of(to) == &node_of(member) ? TrafficCount{bytes, 0, 0} : TrafficCount{0, bytes, 0};
}

/// The member sends `bytes` to its successor.
TrafficCount GroupCosts::ring(int member, std::uint64_t bytes) const {
  return size_ == 1 ? TrafficCount{} : sent(member, (member + 1) % static_cast<int>(size_), bytes);
}

bool GroupCosts::by_messages() const {
  return topology_.transport != Transport::nccl && (!shared(topology_) || nodes_.size() == size_);
}

TrafficCount GroupCosts::gather_by_messages(int member, std::uint64_t chunk) const {
  if (size_ <= comm::tree_radix) return direct(member, chunk);
  TrafficCount count;
  const int size = static_cast<int>(size_);
  comm::visit_gather_rounds(size, [&](int held, int chunks) {
    count += sent(member, (member + held) % size, static_cast<std::uint64_t>(chunks) * chunk);
  });
  return count;
}

/// `term`, `sum`: bytes of a chunk as given and in fp32.
TrafficCount GroupCosts::reduce_by_messages(int member, std::uint64_t term, std::uint64_t sum) const {
  if (size_ <= comm::tree_radix) return direct(member, term);
  TrafficCount count;
  const auto add = [&](int peer, int chunks, bool terms) {
    count += sent(member, peer, static_cast<std::uint64_t>(chunks) * (terms ? term : sum));
  };
  comm::visit_sends(static_cast<int>(size_), member, std::cref(add));
  return count;
}

TrafficCount GroupCosts::counters_by_messages(int member, std::uint64_t bytes) const {
  if (size_ <= comm::tree_radix) return direct(member, bytes);
  TrafficCount count;
  comm::visit_doubling_rounds(static_cast<int>(size_), member, [&](int peer, bool sends, comm::Receives) {
    if (sends) count += sent(member, peer, bytes);
  });
  return count;
}

TrafficCount GroupCosts::two_level(int member, std::uint64_t chunk, CollectiveKind kind) const {
  const comm::NodeMembers& node = node_of(member);
  const auto local = static_cast<std::uint64_t>(node.count), own = static_cast<std::uint64_t>(node.operands());
  const bool leader = node.first == member;
  TrafficCount count;
  count.within_node = (local - 1) * chunk;
  if (kind == CollectiveKind::all_gather) {
    if (leader) count.across_nodes = local * chunk * (nodes_.size() - 1);
    else count.within_node += (size_ - local) * chunk;
  } else if (kind == CollectiveKind::all_to_all) {
    if (leader) count.across_nodes = local * (size_ - local) * chunk;
    else count.within_node += 2 * (size_ - local) * chunk;
  } else {
    if (leader) count.across_nodes = own * (size_ - local) * chunk;
    else count.within_node += (size_ - local + operands_ - own) * chunk;
  }
  return count;
}

TrafficCount GroupCosts::copied_gather(int member, std::uint64_t bytes) const {
  return nodes_.size() == 1 && shared(topology_) ? direct(member, bytes / size_)
                                                 : traffic(member, CollectiveKind::all_gather, bytes);
}

TrafficCount GroupCosts::all_reduce(int member, std::uint64_t bytes) const {
  TrafficCount count = traffic(member, CollectiveKind::reduce_scatter, bytes);
  const TrafficCount gathered = copied_gather(member, bytes);
  count.within_node += gathered.within_node;
  count.across_nodes += gathered.across_nodes;
  return count;
}

TrafficCount GroupCosts::traffic(int member, CollectiveKind kind, std::uint64_t bytes) const {
  const auto chunk = bytes / size_;
  TrafficCount count;
  if (kind == CollectiveKind::all_reduce) count = all_reduce(member, bytes);
  else if (topology_.transport == Transport::nccl)
    count = kind == CollectiveKind::all_to_all ? direct(member, chunk) : ring(member, (size_ - 1) * chunk);
  else if (by_messages() && kind == CollectiveKind::all_gather) count = gather_by_messages(member, chunk);
  else if (by_messages() && kind == CollectiveKind::reduce_scatter) count = reduce_by_messages(member, chunk, chunk);
  else if (by_messages()) count = direct(member, chunk);
  else if (nodes_.size() > 1) count = two_level(member, chunk, kind);
  else if (kind != CollectiveKind::all_gather || !in_place_) count.within_node = (size_ - 1) * chunk;
  count.collectives = 1;
  return count;
}

TrafficCount GroupCosts::sum_traffic(int member, CollectiveKind kind, std::uint64_t numel, DType dtype) const {
  const bool two_levels = shared(topology_) && nodes_.size() > 1 && nodes_.size() < size_;
  const std::uint64_t sums = numel * sizeof(float), input = two_levels ? sums : numel * size_of(dtype);
  TrafficCount count = traffic(member, CollectiveKind::reduce_scatter, input);
  if (by_messages()) {
    count = reduce_by_messages(member, input / size_, sums / size_);
    count.collectives = 1;
  }
  if (kind == CollectiveKind::reduce_scatter) return count;
  TrafficCount full = traffic(member, kind, sums);  // less the difference of the narrower reduce_scatter
  const TrafficCount half = traffic(member, CollectiveKind::reduce_scatter, sums);
  full.within_node -= half.within_node - count.within_node;
  full.across_nodes -= half.across_nodes - count.across_nodes;
  return full;
}

TrafficCount GroupCosts::int8_traffic(int member, CollectiveKind kind, std::uint64_t bytes) const {
  TrafficCount count;
  if (kind != CollectiveKind::all_gather) count = traffic(member, CollectiveKind::all_to_all, bytes);
  if (kind == CollectiveKind::reduce_scatter) return count;
  const TrafficCount gathered = copied_gather(member, bytes);
  count.within_node += gathered.within_node;
  count.across_nodes += gathered.across_nodes;
  ++count.collectives;
  return count;
}

TrafficCount GroupCosts::counters_traffic(int member, std::uint64_t counters) const {
  const std::uint64_t bytes = counters * sizeof(std::int64_t);
  TrafficCount count;
  if (topology_.transport == Transport::nccl) {
    count = ring(member, bytes);
  } else if (by_messages()) {
    count = counters_by_messages(member, bytes);
  } else {
    const auto& node = node_of(member);
    if (nodes_.size() == 1) count.within_node = (size_ - 1) * bytes;
    else if (node.first == member)
      count = {(static_cast<std::uint64_t>(node.count) - 1) * bytes, (nodes_.size() - 1) * bytes, 0};
    else count.within_node = bytes;
  }
  count.collectives = 1;
  return count;
}

GroupCosts AxisCosts::group(int rank) const { return {topology_, mesh_.members(rank, axes_), in_place_}; }

AxisLoad axis_load(std::span<const TrafficCount> ranks, int ranks_per_node) {
  AxisLoad load;
  std::uint64_t uplink = 0;
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    if (rank % static_cast<std::size_t>(std::max(1, ranks_per_node)) == 0) uplink = 0;
    uplink += ranks[rank].across_nodes;
    load.node_uplink = std::max(load.node_uplink, uplink);
    load.busiest_rank = std::max(load.busiest_rank, ranks[rank].within_node + ranks[rank].across_nodes);
  }
  return load;
}

std::size_t staging_bytes(const Topology& topology, const Mesh& mesh, AxisSet axes, int rank, std::uint64_t bytes) {
  const auto members = mesh.members(rank, axes);
  if (members.size() == 1 || topology.transport == Transport::nccl) return 0;
  if (topology.staged) {
    Topology host = topology;
    host.staged = false;
    const auto size = static_cast<int>(members.size());
    // The host transport moves these slices.
    return staged_bytes(size, staged_slice(size)) +
           staging_bytes(host, mesh, axes, rank, members.size() * staged_slice(size));
  }
  if (shared(topology) && split_by_node(members, topology.ranks_per_node).size() < members.size()) return 0;
  // Whole chunks, or two slices of them, so that one arrives while the other is added.
  constexpr std::size_t budget = std::size_t{8} << 20, least_slice = 1024;
  const std::size_t slots = comm::tree_slots(static_cast<int>(members.size())),
                    full = (slots * (bytes / members.size()) + 63) / 64 * 64;
  return std::min(full, std::max(budget, 2 * slots * least_slice));
}

namespace {
/// See transport_bytes.
std::size_t nccl_bytes(const std::vector<comm::NodeMembers>& nodes, std::size_t size) {
  if (size == 1) return 0;
  constexpr std::size_t channels = 24, receive = std::size_t{10} << 20, send_within = std::size_t{2} << 20;
  const std::size_t within = receive + send_within, across = 2 * receive;
  if (size == 2) return channels * (nodes.size() == 1 ? within : across);
  if (nodes.size() == 1) return channels * 2 * within;
  return channels * (nodes.size() == size ? 2 * across : within + across);
}
}  // namespace

std::size_t transport_bytes(const Topology& topology, const Mesh& mesh, AxisSet axes, int rank) {
  const auto members = mesh.members(rank, axes);
  const auto node_members = split_by_node(members, topology.ranks_per_node);
  if (topology.transport == Transport::nccl) return nccl_bytes(node_members, members.size());
  if (!shared(topology) || (node_members.size() == members.size() && members.size() > 1)) return 0;
  const int me = mesh.coordinate(rank, axes);
  const comm::NodeMembers& here = node_members[comm::node_index_of(node_members, me)];
  const std::size_t scratch = node_members.size() == 1 ? comm::node_scratch : comm::two_level_scratch;
  return part_of(comm::node_region_bytes(here.count, scratch), here.count, me - here.first);
}

}  // namespace tessera
