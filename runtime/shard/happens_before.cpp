// One pass in list order. A collective ends after it has started on every member; so its end knows what every member
// knew at its start.

#include "runtime/shard/happens_before.hpp"

#include <algorithm>

namespace tessera::shard {
namespace {

/// The peers that take part in an instruction. A reduce is a reduce-scatter over the shard axis, then an all-reduce
/// over the replicate axis among ranks that have each finished the first: it ends after everybody's start.
std::vector<Peer> members(Op op, const Mesh& mesh) {
  const bool shard = mesh.size(Axis::shard) > 1, replicate = mesh.size(Axis::replicate) > 1;
  std::vector<Peer> out;
  if (op != Op::gather && op != Op::reduce && op != Op::norm) return out;
  if (shard) out.push_back(Peer::shard);
  if (op == Op::gather) return out;
  if (replicate) out.push_back(Peer::replicate);
  if (shard && replicate) out.push_back(Peer::both);
  return out;
}

}  // namespace

void HappensBefore::join(Clock& into, const Clock& other, Peer seen_from) {
  for (std::size_t p = 0; p < num_peers; ++p) {
    const std::size_t q = p ^ static_cast<std::size_t>(seen_from);  // the peer that the other rank calls p
    for (std::size_t s = 0; s < num_streams; ++s) {
      into[q * num_streams + s] = std::max(into[q * num_streams + s], other[p * num_streams + s]);
    }
  }
}

HappensBefore::HappensBefore(const Schedule& schedule, const Mesh& mesh, int steps) : schedule_(schedule) {
  const std::size_t length = schedule.list.size(), total = length * static_cast<std::size_t>(steps);
  std::array<std::vector<Peer>, 8> members_of;
  for (std::size_t op = 0; op < members_of.size(); ++op) members_of[op] = members(static_cast<Op>(op), mesh);
  start_.reserve(total);
  position_.reserve(total);
  std::vector<Clock> end;
  end.reserve(total);
  std::array<int, num_streams> ordinal{};
  std::array<Clock, num_streams> last{};  // end of the latest event of each stream
  for (std::size_t e = 0; e < total; ++e) {
    const Instruction& in = schedule.list[e % length];
    if (e % length == 0) {  // the streams of this rank synchronize between steps
      Clock all{};
      for (const Clock& c : last) join(all, c, Peer::self);
      last.fill(all);
    }
    const auto stream = static_cast<std::size_t>(in.stream);
    Clock clock = last[stream];
    for (const int d : in.after) join(clock, end[e - e % length + static_cast<std::size_t>(d)], Peer::self);
    start_.push_back(clock);
    position_.push_back(++ordinal[stream]);
    for (const Peer peer : members_of[static_cast<std::size_t>(in.op)]) join(clock, start_.back(), peer);
    clock[slot(Peer::self, stream)] = ordinal[stream];
    last[stream] = clock;
    end.push_back(clock);
  }
}

}  // namespace tessera::shard
