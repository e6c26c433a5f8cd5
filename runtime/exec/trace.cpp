// SPDX-License-Identifier: Apache-2.0
#include "runtime/exec/trace.hpp"

namespace tessera::exec {

void TraceRecorder::start(std::size_t capacity) {
  for (std::vector<Mark>& marks : marks_) {
    marks.clear();
    marks.reserve(capacity);
  }
  origin_ = Clock::now();
  on_ = true;
}

void TraceRecorder::add(const Mark& mark, shard::StreamId stream) {
  auto& marks = marks_[static_cast<std::size_t>(stream)];
  if (on_ && marks.size() < marks.capacity()) marks.push_back(mark);
}

std::vector<TraceSpan> TraceRecorder::take() {
  on_ = false;
  std::vector<TraceSpan> spans;
  for (const std::vector<Mark>& marks : marks_)
    for (const Mark& mark : marks) {
      const auto& instruction = mark.schedule->list[static_cast<std::size_t>(mark.instruction)];
      std::string name = (mark.wait ? "wait " : "") + shard::instruction_name(*mark.schedule, instruction);
      spans.push_back(
          {std::move(name), mark.wait ? 0 : static_cast<int>(instruction.stream), mark.begin_s, mark.end_s});
    }
  return spans;
}

}  // namespace tessera::exec
