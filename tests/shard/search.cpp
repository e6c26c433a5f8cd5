// The interleavings that are tried on a schedule.

#include <algorithm>
#include <array>

#include "tests/shard/interpreter.hpp"

namespace tessera::test {

using shard::Schedule;
using shard::StreamId;

std::string find_fault(const Schedule& schedule, const Mesh& mesh, const std::vector<int>& suspects, int num_random,
                       const Schedule* load) {
  std::array<StreamId, shard::num_streams> order{StreamId::compute, StreamId::gather, StreamId::reduce,
                                                 StreamId::replicate};
  std::vector<Choice> choices;
  do {
    for (const bool ends_first : {true, false}) {
      Choice c;
      std::copy(order.begin(), order.end(), c.order);
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
