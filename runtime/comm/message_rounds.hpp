// SPDX-License-Identifier: Apache-2.0
#pragma once
// Who sends what to whom in the collectives by messages that add no floats: the communicator sends accordingly, and the
// topology counts the same. Pure functions. reduction_tree.hpp has the reduce-scatter.

#include <algorithm>
#include <bit>

namespace tessera::comm {

/// Bruck's all-gather: member r, which has `held` chunks, its own and those before it, sends the last `count` of them
/// to member r + held and receives as many from r - held (both mod size). visit(held, count) for each round.
void visit_gather_rounds(int size, const auto& visit) {
  for (int held = 1; held < size; held *= 2) visit(held, std::min(held, size - held));
}

/// What a member does with what it receives.
enum class Receives : unsigned char { nothing, terms, result };

/// Recursive doubling of a sum: the first 2^n members exchange sums; each of the others sends its terms to one of them,
/// and gets the result back. visit(peer, sends, receives) for each round of member `rank`, in order.
void visit_doubling_rounds(int size, int rank, const auto& visit) {
  const auto doubling = static_cast<int>(std::bit_floor(static_cast<unsigned>(size)));
  if (rank >= doubling) {
    visit(rank - doubling, true, Receives::nothing);
    visit(rank - doubling, false, Receives::result);
    return;
  }
  const int extra = rank + doubling;
  if (extra < size) visit(extra, false, Receives::terms);
  for (int distance = 1; distance < doubling; distance *= 2) visit(rank ^ distance, true, Receives::terms);
  if (extra < size) visit(extra, true, Receives::nothing);
}

}  // namespace tessera::comm
