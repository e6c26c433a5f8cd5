// SPDX-License-Identifier: Apache-2.0
#pragma once
// The verifier's proof that two conflicting uses of a buffer have one order in every interleaving.

#include <map>
#include <string>
#include <vector>

#include "runtime/base/at.hpp"
#include "runtime/base/error.hpp"
#include "runtime/shard/buffer_contents.hpp"
#include "runtime/shard/happens_before.hpp"
#include "runtime/shard/verify.hpp"

namespace tessera::shard {

/// Steps through the instructions of a schedule; collects what is wrong.
class UseOrder {
 public:
  UseOrder(const Schedule& schedule, const Mesh& mesh, int steps) : hb(schedule, mesh, steps), s_(schedule) {}

  /// Goes to instruction `index` of step `step_index`.
  void go_to(int step_index, int index) {
    step = step_index;
    now_ = index;
    event = step * static_cast<int>(s_.list.size()) + index;
  }
  void fail(const std::string& what) {
    violations.push_back({now_, instruction_name(s_, s_.list[at(now_)]) + " " + what});
  }
  [[nodiscard]] std::string name(int of) const { return instruction_name(s_, s_.list[at(of) % s_.list.size()]); }
  [[nodiscard]] const char* unit_name(int unit) const { return unit < 0 ? "nothing" : s_.units[at(unit)].name.c_str(); }

  void ordered_after(int other, Peer peer, const char* buffer) {
    if (other < 0 || (other == event && peer == self) || hb.before(other, peer, event)) return;
    fail(strfmt("is not ordered after %s%s, which uses %s", name(other).c_str(), peer == self ? "" : " of a peer",
                buffer));
  }
  void read(Uses& buffer, const char* what) {
    ordered_after(buffer.writer, self, what);
    buffer.readers[static_cast<std::size_t>(s_.list[at(now_)].stream)] = event;
  }
  void write(Uses& buffer, const char* what) {
    ordered_after(buffer.writer, self, what);
    for (int& reader : buffer.readers) {
      ordered_after(reader, self, what);
      reader = -1;
    }
    buffer.writer = event;
  }

  /// A collective over a group. All ranks call the collectives of one communicator in list order: they are on one
  /// thread, or one stream of a device, which has the gather and reduce streams, or ordered by dependencies.
  void joins(const char* purpose, AxisSet axes) {
    if (axes.empty()) return;
    const auto thread = [](const Instruction& in) { return in.stream == StreamId::replicate; };
    const auto [last, first] = collectives_.try_emplace(purpose + axes.str(), event);
    const Instruction& before = s_.list[at(last->second) % s_.list.size()];
    if (!first && thread(before) != thread(s_.list[at(now_)]) && !hb.before(last->second, self, event))
      fail(strfmt("shares the communicator of %s and is not ordered after it", name(last->second).c_str()));
    last->second = event;
  }

  HappensBefore hb;
  int step = 0, event = 0;
  std::vector<Violation> violations;

 private:
  const Schedule& s_;
  int now_ = 0;
  std::map<std::string, int> collectives_;  // purpose and axes of a communicator → its latest collective
};

}  // namespace tessera::shard
