// SPDX-License-Identifier: Apache-2.0
#pragma once
// The members of an axis grouped by node, for two-level communication and its cost. Pure functions.

#include <bit>
#include <cstddef>
#include <span>
#include <vector>

#include "runtime/base/mapping.hpp"

namespace tessera::comm {

/// Members [first, first + count) of an axis share a node.
struct NodeMembers {
  int first = 0, count = 0;
  /// True if these members are a whole subtree of the binary-counter reduction tree. Then their sum is one operand of
  /// the sum over all.
  [[nodiscard]] bool subtree() const { return std::has_single_bit(static_cast<unsigned>(count)) && first % count == 0; }
  /// Operands that the node's leader sends to another node: one sum, or every member's own.
  [[nodiscard]] int operands() const { return subtree() ? 1 : count; }
  /// Level of each of them in the reduction tree.
  [[nodiscard]] int level() const { return subtree() ? std::bit_width(static_cast<unsigned>(count)) - 1 : 0; }
};

/// `members`: world ranks of an axis, ascending. `ranks_per_node` consecutive ranks share a node.
[[nodiscard]] std::vector<NodeMembers> split_by_node(std::span<const int> members, int ranks_per_node);
/// Index of the node that `member` is on.
[[nodiscard]] std::size_t node_index_of(const std::vector<NodeMembers>& node_members, int member);

/// Bytes of shared scratch that a communicator allocates for each of its members on a node.
inline constexpr std::size_t node_scratch = std::size_t{256} << 10;     // one node: for buffers that are not shared
inline constexpr std::size_t two_level_scratch = std::size_t{4} << 20;  // several nodes: all data passes through it

/// Bytes of the region that `members` of a node share for one communicator: the state of their barrier, and their
/// scratch.
inline constexpr std::size_t barrier_state_bytes = 128, barrier_member_bytes = 128;
[[nodiscard]] constexpr std::size_t node_head_bytes(int members) {
  return round_to_pages(barrier_state_bytes + static_cast<std::size_t>(members) * barrier_member_bytes);
}
[[nodiscard]] constexpr std::size_t node_region_bytes(int members, std::size_t scratch) {
  return node_head_bytes(members) + static_cast<std::size_t>(members) * round_to_pages(scratch);
}

/// Bytes of a chunk that one round of a two-level gather, reduce-scatter or all-to-all moves: what fits the smallest
/// node's scratch, twice in a gather or reduce-scatter, of which two rounds are in flight. A multiple of 64, the same
/// on every member.
[[nodiscard]] std::size_t gather_slice(const std::vector<NodeMembers>& node_members);
[[nodiscard]] std::size_t reduce_slice(const std::vector<NodeMembers>& node_members);
[[nodiscard]] std::size_t exchange_slice(const std::vector<NodeMembers>& node_members);

}  // namespace tessera::comm
