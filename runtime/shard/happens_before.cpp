// SPDX-License-Identifier: Apache-2.0
// One pass in list order. A collective ends after it has started on every member; so its end knows what every member
// knew at its start.

#include "runtime/shard/happens_before.hpp"

#include <algorithm>
#include <array>

#include "runtime/base/at.hpp"

namespace tessera::shard {

std::vector<Peer> HappensBefore::peers(AxisSet axes) const {
  Peer differing = 0;
  for (std::size_t a = 0; a < axes_.size(); ++a)
    if (axes.contains(axes_[a])) differing |= 1U << a;
  std::vector<Peer> out;
  for (Peer peer = 1; peer < 1U << axes_.size(); ++peer)
    if ((peer & ~differing) == 0) out.push_back(peer);
  return out;
}

/// The peers that take part.
std::vector<Peer> HappensBefore::members(const Instruction& instruction) const {
  if (instruction.op == Op::norm) {
    AxisSet all;
    for (const Axis axis : axes_) all = all | axis;
    return peers(all);
  }
  if (instruction.op == Op::exchange)  // a copy waits for nobody
    return schedule_.exchange_kind(instruction) == ExchangeKind::copy ? std::vector<Peer>()
                                                                      : peers(schedule_.exchange_of(instruction).axes);
  const bool sharded = instruction.op == Op::gather || instruction.op == Op::reduce_scatter;
  if (!sharded && instruction.op != Op::all_reduce) return {};
  const ScheduledUnit& unit = schedule_.units[at(instruction.unit)];
  return peers(sharded ? unit.shard_axes : unit.replicate_axes);
}

void HappensBefore::join(int* into, const int* other, Peer seen_from) const {
  const Peer num_peers = 1U << axes_.size();
  for (Peer p = 0; p < num_peers; ++p) {
    const Peer q = p ^ seen_from;  // the peer that the other rank calls p
    for (std::size_t s = 0; s < num_streams; ++s) into[slot(q, s)] = std::max(into[slot(q, s)], other[slot(p, s)]);
  }
}

HappensBefore::HappensBefore(const Schedule& schedule, const Mesh& mesh, int steps) : schedule_(schedule) {
  for (int a = 0; a < num_axes; ++a)
    if (mesh.size(static_cast<Axis>(a)) > 1) axes_.push_back(static_cast<Axis>(a));
  clock_size_ = (std::size_t{1} << axes_.size()) * num_streams;
  const std::size_t length = schedule.list.size(), total = length * static_cast<std::size_t>(steps);
  std::vector<std::vector<Peer>> members_of;
  for (const Instruction& instruction : schedule.list) members_of.push_back(members(instruction));
  start_.resize(total * clock_size_);
  std::vector<int> end(total * clock_size_);
  position_.reserve(total);
  std::array<int, num_streams> ordinal{};
  std::array<Clock, num_streams> last;  // end of the latest event of each stream
  last.fill(Clock(clock_size_, 0));
  Clock clock(clock_size_, 0);
  for (std::size_t e = 0; e < total; ++e) {
    const Instruction& in = schedule.list[e % length];
    if (e % length == 0) {  // the streams of this rank synchronize between steps
      std::ranges::fill(clock, 0);
      for (const Clock& c : last) join(clock.data(), c.data(), self);
      last.fill(clock);
    }
    const auto stream = static_cast<std::size_t>(in.stream);
    clock = last[stream];
    for (const int d : in.after)
      join(clock.data(), &end[(e - e % length + static_cast<std::size_t>(d)) * clock_size_], self);
    int* const start = &start_[e * clock_size_];
    std::ranges::copy(clock, start);
    position_.push_back(++ordinal[stream]);
    for (const Peer peer : members_of[e % length]) join(clock.data(), start, peer);
    clock[slot(self, stream)] = ordinal[stream];
    last[stream] = clock;
    std::ranges::copy(clock, end.begin() + static_cast<std::ptrdiff_t>(e * clock_size_));
  }
}

}  // namespace tessera::shard
