// SPDX-License-Identifier: Apache-2.0
#pragma once
// Who sends what in a reduce-scatter whose sums follow the binary-counter tree. Pure functions.

#include <cstddef>
#include <functional>
#include <vector>

namespace tessera::comm {

/// Blocks that exchange directly at one level of the tree; a power of two, so that each level is a part of the counter.
inline constexpr int tree_radix = 8;

/// The chunks first, first + step, … below the number of members.
struct ChunkSet {
  int first = 0, step = 1;
  [[nodiscard]] int count(int size) const { return first < size ? (size - 1 - first) / step + 1 : 0; }
};

/// One message of a level: this member's sums of some chunks, set after set. `block`: that of the peer among those that
/// exchange.
struct TreeMessage {
  int peer = 0, block = 0;
  std::vector<ChunkSet> chunks;
  [[nodiscard]] int count(int size) const;
};

/// Level k combines blocks of 8^k consecutive members into blocks of 8^(k+1); the last block of a level may have fewer
/// members. A block's members share its sums of all chunks: each holds some. At level k this member sends what members
/// of other blocks are to hold, receives the other blocks' sums of the chunks that it will hold itself, and adds them
/// in the order of the blocks. In the end member r holds chunk r.
struct TreeLevel {
  int block = 0, blocks = 1;          // this member's block, and how many exchange
  std::vector<ChunkSet> held;         // afterwards
  std::vector<TreeMessage> sends;     // at most 7; more for members of an incomplete last block (decision 0044)
  std::vector<TreeMessage> receives;  // one for each other block, of the chunks `held`; none if nothing is held
  [[nodiscard]] int held_count(int size) const;
};

/// The levels of member `rank` of `size`. Levels in which its block has nothing to exchange are left out, but for level
/// 0, whose terms become sums in fp32. Takes O(log size) time, O(size) for members of incomplete blocks.
[[nodiscard]] std::vector<TreeLevel> reduction_tree(int size, int rank);

/// Visits what the member sends, without memory for it: to whom, how many chunks, and whether they are its own terms
/// (level 0) or sums. A peer may be visited more than once.
void visit_sends(int size, int rank, const std::function<void(int peer, int chunks, bool terms)>& visit);

/// Chunks that a member has to keep at once while it reduces: packed to be sent, received, and their sums. The largest
/// of all members of a group, computed once; size - 1 up to 8 members.
[[nodiscard]] std::size_t tree_slots(int size);
/// The same of one member.
[[nodiscard]] std::size_t tree_slots(const std::vector<TreeLevel>& levels, int size);

}  // namespace tessera::comm
