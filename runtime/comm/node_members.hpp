#pragma once
// The members of an axis, cut into node_members that sit on one node: what a two-level transport and its prices are
// made of. Pure.

#include <bit>
#include <cstddef>
#include <vector>

namespace tessera::comm {

/// Members [first, first + count) of an axis share a node.
struct NodeMembers {
  int first = 0, count = 0;
  /// True if the run is a whole subtree of the counter tree over members, so that its sum is a term of everybody's sum.
  [[nodiscard]] bool subtree() const { return std::has_single_bit(static_cast<unsigned>(count)) && first % count == 0; }
  /// SourceBuffer that its leader sends to another node: one sum, or every member's.
  [[nodiscard]] int terms() const { return subtree() ? 1 : count; }
  /// Level of each of those terms in the counter tree.
  [[nodiscard]] int level() const { return subtree() ? std::bit_width(static_cast<unsigned>(count)) - 1 : 0; }
};

/// World ranks of an axis' members in order (ascending) → node_members, given how many consecutive ranks make a node.
[[nodiscard]] std::vector<NodeMembers> split_by_node(const std::vector<int>& members, int ranks_per_node);
/// Index of the run that holds `member`.
[[nodiscard]] std::size_t node_index_of(const std::vector<NodeMembers>& node_members, int member);

/// Shared scratch of a node for one communicator, per member there: bytes that the transport allocates for itself.
inline constexpr std::size_t node_scratch = std::size_t{256}
                                            << 10;  // one node: for buffers that are not shared, and small things
inline constexpr std::size_t two_level_scratch = std::size_t{1} << 20;  // several nodes: everything passes through it

/// Bytes of a chunk that one round of a two-level gather / reduce-scatter moves: what the scratch of the narrowest node
/// holds. Multiples of 64, the same on every member.
[[nodiscard]] std::size_t gather_piece(const std::vector<NodeMembers>& node_members);
[[nodiscard]] std::size_t reduce_piece(const std::vector<NodeMembers>& node_members);

}  // namespace tessera::comm
