// SPDX-License-Identifier: Apache-2.0
// The interleavings that are tried on a schedule.

#include <algorithm>
#include <array>

#include "tests/shard/interpreter.hpp"

namespace tessera::test {

using shard::Schedule;
using shard::StreamId;

std::string find_fault(const Schedule& schedule, const Mesh& mesh, const std::vector<int>& suspects, int num_random,
                       const Schedule* load) {
  // Every order of the streams that move no states or activations, with the others first or last.
  std::array<StreamId, 4> order{StreamId::compute, StreamId::gather, StreamId::reduce, StreamId::replicate};
  const bool moves = std::ranges::any_of(schedule.list, [](const shard::Instruction& in) {
    return in.stream == StreamId::host || in.stream == StreamId::fetch || in.stream == StreamId::store ||
           in.stream == StreamId::exchange;
  });
  std::vector<Choice> choices;
  do {
    for (const bool ends_first : {true, false})
      for (const bool moves_first : {false, true}) {
        if (moves_first && !moves) continue;
        const std::array<StreamId, 4> others{StreamId::fetch, StreamId::host, StreamId::store, StreamId::exchange};
        Choice c;
        const std::size_t first = moves_first ? others.size() : 0;
        std::ranges::copy(order, c.order + first);
        std::ranges::copy(others, c.order + (first > 0 ? 0 : order.size()));
        c.ends_first = ends_first;
        choices.push_back(c);
      }
  } while (std::next_permutation(order.begin(), order.end()));
  choices.push_back(choices.front());
  choices.back().one_queue = true;
  const auto hold = [&](int i) {
    for (const bool start : {false, true}) {
      Choice c = choices.front();
      c.held = i;
      c.hold_start = start;
      choices.push_back(c);
    }
  };
  for (const int i : suspects) hold(i);
  for (int k = 0; k < num_random; ++k) {
    Choice c;
    c.kind = Choice::Kind::random;
    c.seed = static_cast<std::uint64_t>(k) + 1;
    choices.push_back(c);
  }
  for (int i = 0; i < static_cast<int>(schedule.list.size()); ++i) hold(i);
  for (const Choice& c : choices) {
    if (std::string fault = interpret(schedule, mesh, c, load); !fault.empty()) return fault;
  }
  return {};
}

}  // namespace tessera::test
