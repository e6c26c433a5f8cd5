// SPDX-License-Identifier: Apache-2.0
// The levels of a reduce-scatter: which member of a block holds the block's sum of a chunk, before and after each.
#include "runtime/comm/reduction_tree.hpp"

#include <algorithm>
#include <map>
#include <mutex>

namespace tessera::comm {

namespace {

/// `count` members from `first` on; a full block has `width` members, a power of tree_radix.
struct Block {
  int first, count, width;
  [[nodiscard]] bool full() const { return count == width; }
};

Block block_of(int size, int width, int rank) {
  const int first = rank / width * width;
  return {first, std::min(width, size - first), width};
}

/// The member that holds the block's sum of a chunk: number chunk mod width. Where an incomplete block has no such
/// member, one of equal number in a full block one level lower.
int holder(Block of, int chunk) {
  for (; of.width > 1; of.width /= tree_radix) {
    const int number = chunk % of.width, part = of.width / tree_radix, full = of.count / part;
    if (number < of.count) return of.first + number;
    if (full > 0) return of.first + number / part % full * part + number % part;
  }
  return of.first;
}

/// Adds a set to the message for `peer`, which is new or the last one that was made for it.
void add_set(std::vector<TreeMessage>& messages, int peer, int peer_block, ChunkSet set) {
  const auto found = std::find_if(messages.begin(), messages.end(), [&](const auto& m) { return m.peer == peer; });
  (found != messages.end() ? *found : messages.emplace_back(TreeMessage{peer, peer_block, {}})).chunks.push_back(set);
}

/// Visits the classes of chunks (mod whole.width) whose sums this member has before `whole` is made of blocks of
/// `width` members, and the members that hold them afterwards.
void for_each_class(int size, int rank, const Block& whole, int width, const auto& visit) {
  const Block mine = block_of(size, width, rank);
  // A full block's member holds the chunks of its own number.
  const int step = mine.full() ? width : 1;
  for (int chunk = mine.full() ? rank - mine.first : 0; chunk < std::min(whole.width, size); chunk += step)
    if (mine.full() || holder(mine, chunk) == rank) visit(ChunkSet{chunk, whole.width}, holder(whole, chunk));
}

/// The level that makes `whole` of blocks of `width` members.
TreeLevel level_of(int size, int rank, const Block& whole, int width) {
  const auto block_at = [&](int member) { return (member - whole.first) / width; };
  TreeLevel level;
  level.block = block_at(rank);
  level.blocks = (whole.count + width - 1) / width;
  for_each_class(size, rank, whole, width, [&](ChunkSet set, int to) {
    if (to != rank) add_set(level.sends, to, block_at(to), set);
  });
  // Whoever holds a chunk afterwards has the number of the full blocks' members that hold it before.
  const int number = (rank - whole.first) % width;
  for (int chunk = number; chunk < std::min(whole.width, size); chunk += width)
    if (holder(whole, chunk) == rank) level.held.push_back({chunk, whole.width});
  if (level.held.empty()) return level;
  for (int other = 0; other < level.blocks; ++other) {
    if (other == level.block) continue;
    const int from = holder(block_of(size, width, whole.first + other * width), number);
    level.receives.push_back({from, other, level.held});
  }
  return level;
}

}  // namespace

int TreeMessage::count(int size) const {
  int sum = 0;
  for (const ChunkSet& set : chunks) sum += set.count(size);
  return sum;
}

int TreeLevel::held_count(int size) const {
  int sum = 0;
  for (const ChunkSet& set : held) sum += set.count(size);
  return sum;
}

std::vector<TreeLevel> reduction_tree(int size, int rank) {
  std::vector<TreeLevel> levels;
  for (int width = 1; width < size; width *= tree_radix) {
    const Block whole = block_of(size, width * tree_radix, rank);
    if (width == 1 || whole.count > width) levels.push_back(level_of(size, rank, whole, width));
  }
  return levels;
}

void visit_sends(int size, int rank, const std::function<void(int peer, int chunks, bool terms)>& visit) {
  for (int width = 1; width < size; width *= tree_radix) {
    const Block whole = block_of(size, width * tree_radix, rank);
    for_each_class(size, rank, whole, width, [&](ChunkSet set, int to) {
      if (to != rank) visit(to, set.count(size), width == 1);
    });
  }
}

std::size_t tree_slots(const std::vector<TreeLevel>& levels, int size) {
  std::size_t slots = 0;
  for (std::size_t k = 0; k < levels.size(); ++k) {
    for (const TreeMessage& message : levels[k].receives) slots += static_cast<std::size_t>(message.count(size));
    if (k + 1 < levels.size()) slots += static_cast<std::size_t>(levels[k].held_count(size));
    if (k > 0) continue;  // sums lie as they are sent
    for (const TreeMessage& message : levels[k].sends)
      if (message.count(size) > 1) slots += static_cast<std::size_t>(message.count(size));
  }
  return slots;
}

std::size_t tree_slots(int size) {
  if (size <= tree_radix) return static_cast<std::size_t>(std::max(0, size - 1));
  static std::mutex mutex;
  static std::map<int, std::size_t> known;
  std::lock_guard lock(mutex);
  const auto [entry, fresh] = known.insert({size, 0});
  for (int rank = 0; fresh && rank < size; ++rank)
    entry->second = std::max(entry->second, tree_slots(reduction_tree(size, rank), size));
  return entry->second;
}

}  // namespace tessera::comm
