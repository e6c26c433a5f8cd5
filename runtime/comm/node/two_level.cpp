// SPDX-License-Identifier: Apache-2.0
// Two-level collectives: the ranks of a node share scratch, and the first of them, the leader, exchanges with the
// leaders of other nodes. Data moves in slices that fit the scratch; two are on their way at a time. A node whose
// members are a subtree of the reduction tree sends their sum, any other node sends each member's data, so that the
// bits equal those of the other transports. The scratch holds fp32: 16-bit inputs are widened on the way in.
#include <algorithm>
#include <cstring>

#include "kernels/reduce.hpp"
#include "runtime/base/at.hpp"
#include "runtime/base/error.hpp"
#include "runtime/comm/node/communicator.hpp"
#include "runtime/comm/sum_to_f32.hpp"

namespace tessera::comm {

namespace {

class TwoLevelCommunicator final : public BaseCommunicator {
 public:
  TwoLevelCommunicator(CommunicatorInfo where, std::shared_ptr<SharedMemory> memory, std::unique_ptr<Endpoint> leaders)
      : BaseCommunicator(std::move(where)),
        group_(std::move(memory), two_level_scratch),
        leaders_(std::move(leaders)),
        node_members_(info().node_members),
        members_(info().members.size()),
        nodes_(node_members_.size()),
        local_(at(here().count)),
        me_(at(group_.rank())),
        gather_slice_(gather_slice(node_members_)),
        reduce_slice_(reduce_slice(node_members_) / sizeof(float)) {
    parts_.reserve(members_);
    operands_.reserve(members_);
    widest_ = 0;
    for (const auto& group : node_members_) {
      widest_ = std::max(widest_, at(group.count));
      equal_levels_ = equal_levels_ && group.level() == node_members_.front().level();
    }
    equal_levels_ = equal_levels_ && std::all_of(node_members_.begin(), node_members_.end(),
                                                 [](const NodeMembers& r) { return r.operands() == 1; });
  }

  MessageCount messages() const override { return leaders_ ? leaders_->count() : MessageCount{}; }
  bool shares_memory() const override { return false; }
  SharedRegion share(std::size_t) override { return {}; }
  void set_staging(std::span<std::byte>) override {}
  std::size_t own_memory() const override { return group_.measured_bytes(); }

  using BaseCommunicator::all_reduce;
  void all_reduce(CollectiveLabel label, std::span<std::int64_t> counters) override {
    Issue issue(*this, label, counters.size_bytes());
    // A slot for each member here and one for each node; `capacity` counters fit each on the widest node.
    const std::size_t capacity = two_level_scratch / (widest_ + nodes_) / sizeof(std::int64_t);
    for (std::size_t first = 0; first < counters.size(); first += capacity)
      add_counters(counters.subspan(first, std::min(capacity, counters.size() - first)), capacity);
  }

  void broadcast(CollectiveLabel label, std::span<std::byte> bytes, int root) override {
    Issue issue(*this, label, bytes.size());
    const std::size_t root_node = node_index_of(node_members_, root);
    for (std::size_t first = 0; first < bytes.size(); first += two_level_scratch) {
      const auto slice = bytes.subspan(first, std::min(two_level_scratch, bytes.size() - first));
      const auto scratch = group_.scratch().first(slice.size());
      if (rank() == root) std::memcpy(scratch.data(), slice.data(), slice.size());
      group_.barrier(*this, 3 * first);
      if (leaders_) comm::broadcast(*leaders_, *this, scratch, static_cast<int>(root_node), tag(), &node_members_);
      group_.barrier(*this, 3 * first + 1);
      if (rank() != root) {
        std::memcpy(slice.data(), scratch.data(), slice.size());
        if (!leaders_ || node() == root_node) count_within(slice.size());
      }
      group_.barrier(*this, 3 * first + 2);
    }
  }

  void barrier(CollectiveLabel label) override {
    Issue issue(*this, label, 0);
    group_.barrier(*this, 0);
    if (leaders_) comm::barrier(*leaders_, *this, tag());
    group_.barrier(*this, 1);
  }

 private:
  [[nodiscard]] std::byte* scratch(std::size_t offset) const { return group_.scratch().data() + offset; }
  [[nodiscard]] float* floats(std::size_t offset) const {
    return reinterpret_cast<float*>(group_.scratch().data()) + offset;
  }
  void barrier() { group_.barrier(*this, phase_++); }

  /// Two rounds at a time are in flight between the leaders: while one is received, the next is copied to the scratch
  /// and posted. `begin` posts a round on a lane, `end` completes it. The buffers of a round are free when the barrier
  /// after `end` has passed.
  void pipeline(std::size_t rounds, const auto& begin, const auto& end) {
    phase_ = 0;
    if (rounds > 0) begin(std::size_t{0}, 0);
    for (std::size_t round = 0; round < rounds; ++round) {
      const int lane = static_cast<int>(round % 2);
      if (round + 1 < rounds) begin(round + 1, 1 - lane);
      if (leaders_) finish(*leaders_, lane, *this);
      end(round, lane);
      barrier();
    }
  }

  void gather(const std::byte* mine, std::byte* full, std::size_t chunk) override {
    const auto length = [&](std::size_t round) { return std::min(gather_slice_, chunk - round * gather_slice_); };
    // Scratch of a round: one slice of every member, in member order.
    const auto buffer = [&](int lane) { return scratch(at(lane) * members_ * gather_slice_); };
    const auto begin = [&](std::size_t round, int lane) {
      const std::size_t slice = length(round);
      std::memcpy(buffer(lane) + at(rank()) * slice, mine + round * gather_slice_, slice);
      barrier();
      if (leaders_) exchange_slices(buffer(lane), slice, lane);
    };
    const auto end = [&](std::size_t round, int lane) {
      const std::size_t slice = length(round), first = round * gather_slice_;
      barrier();
      for (std::size_t i = 0; i < members_; ++i) {
        std::byte* to = full + i * chunk + first;
        if (i != at(rank())) std::memcpy(to, buffer(lane) + i * slice, slice);
        else if (to != mine + first) std::memcpy(to, mine + first, slice);
      }
      count_within((local_ - 1) * slice + (leaders_ ? 0 : (members_ - local_) * slice));
    };
    pipeline((chunk + gather_slice_ - 1) / gather_slice_, begin, end);
  }

  void exchange_slices(std::byte* slices, std::size_t slice, int lane) {
    for (std::size_t step = 1; step < nodes_; ++step) {
      const std::size_t to = (node() + step) % nodes_, from = (node() + nodes_ - step) % nodes_;
      leaders_->receive(lane, static_cast<int>(from), slices + at(node_members_[from].first) * slice,
                        at(node_members_[from].count) * slice, tag());
      leaders_->send(lane, static_cast<int>(to), slices + at(here().first) * slice, local_ * slice, tag());
      count_across(local_ * slice);
    }
  }

  /// Scratch: to (local chunks for another node), [source][destination]; in (from that node), the same; home, of this
  /// node. A round of `step` sends to one node and receives from another.
  void exchange(const std::byte* parts, std::byte* received, std::size_t chunk) override {
    phase_ = 0;
    const std::size_t room = exchange_slice(node_members_), in = local_ * widest_ * room;
    for (std::size_t first = 0; first < chunk; first += room) {
      const std::size_t slice = std::min(room, chunk - first);
      for (std::size_t step = 0; step < nodes_; ++step) {
        const NodeMembers& to = node_members_[(node() + step) % nodes_];
        const std::size_t source = (node() + nodes_ - step) % nodes_;
        const NodeMembers& from = node_members_[source];
        for (std::size_t d = 0; d < at(to.count); ++d)
          std::memcpy(scratch((me_ * at(to.count) + d) * slice), parts + (at(to.first) + d) * chunk + first, slice);
        barrier();
        if (step > 0 && leaders_) {
          const std::size_t sent = local_ * at(to.count) * slice;
          leaders_->receive(0, static_cast<int>(source), scratch(in), at(from.count) * local_ * slice, tag());
          leaders_->send(0, static_cast<int>((node() + step) % nodes_), scratch(0), sent, tag());
          count_across(sent);
          finish(*leaders_, 0, *this);
        }
        if (step > 0) barrier();
        for (std::size_t i = 0; i < at(from.count); ++i)
          std::memcpy(received + (at(from.first) + i) * chunk + first,
                      scratch((step > 0 ? in : 0) + (i * local_ + me_) * slice), slice);
        if (step == 0) count_within((local_ - 1) * slice);
        else if (!leaders_) count_within((at(to.count) + at(from.count)) * slice);
        barrier();  // the scratch is free for the next round
      }
    }
  }

  /// Scratch regions: home (local operands of this node's chunks), out (local operands of another node's chunks, two of
  /// them), in (received from other nodes, for two slices), each as [operand][destination][slice]. A round exchanges a
  /// slice with one node; nodes - 1 rounds make the sums of the slice.
  void reduce(SourceBuffer full, float* mine, std::size_t chunk) override {
    const std::size_t steps = nodes_ - 1, home = 0, outs = local_ * local_ * reduce_slice_,
                      out_size = local_ * widest_ * reduce_slice_, ins = outs + 2 * out_size,
                      in_size = received_before(nodes_) * local_ * reduce_slice_;
    const auto first = [&](std::size_t round) { return round / steps * reduce_slice_; };
    const auto length = [&](std::size_t round) { return std::min(reduce_slice_, chunk - first(round)); };
    const auto in = [&](std::size_t round) { return ins + round / steps % 2 * in_size; };
    const auto begin = [&](std::size_t round, int lane) {
      const std::size_t slice = length(round), step = round % steps + 1, to = (node() + step) % nodes_,
                        from = (node() + nodes_ - step) % nodes_, out = outs + at(lane) * out_size;
      lay_out(full, chunk, first(round), slice, node_members_[to], out);
      barrier();
      if (here().subtree() && local_ > 1) {
        sum_share(out, at(node_members_[to].count) * slice);
        barrier();
      }
      const std::size_t sent = at(here().operands() * node_members_[to].count) * slice * sizeof(float);
      if (!leaders_) return count_within(at(node_members_[to].count) * slice * sizeof(float));
      leaders_->receive(lane, static_cast<int>(from), floats(in(round) + received_before(from) * local_ * slice),
                        at(node_members_[from].operands()) * local_ * slice * sizeof(float), tag());
      leaders_->send(lane, static_cast<int>(to), floats(out), sent, tag());
      count_across(sent);
    };
    const auto end = [&](std::size_t round, int) {
      const bool last = round % steps + 1 == steps;
      if (!last) return;
      lay_out(full, chunk, first(round), length(round), here(), home);
      barrier();
      combine(home, in(round), length(round), mine + first(round));
    };
    pipeline((chunk + reduce_slice_ - 1) / reduce_slice_ * steps, begin, end);
  }

  /// Copies this rank's operands for the members of `group` to the scratch.
  void lay_out(SourceBuffer full, std::size_t chunk, std::size_t first, std::size_t slice, const NodeMembers& group,
               std::size_t offset) {
    float* to = floats(offset + me_ * at(group.count) * slice);
    for (std::size_t d = 0; d < at(group.count); ++d)
      widen(full.from((at(group.first) + d) * chunk + first), to + d * slice, slice);
  }

  /// Sums the local operands at `offset`, `count` floats each, into the first one; each rank of the node sums a slice.
  void sum_share(std::size_t offset, std::size_t count) {
    const std::size_t begin = count * me_ / local_, end = count * (me_ + 1) / local_;
    parts_.clear();
    for (std::size_t i = 0; i < local_; ++i) parts_.push_back(floats(offset + i * count + begin));
    kernels::sum_tree({.parts = parts_, .out = floats(offset + begin), .count = end - begin}, host_stream);
  }

  /// Operands received from nodes before `other`, this node left out.
  [[nodiscard]] std::size_t received_before(std::size_t other) const {
    std::size_t operands = 0;
    for (std::size_t n = 0; n < other; ++n)
      if (n != node()) operands += at(node_members_[n].operands());
    return operands;
  }

  /// Sums the operands of this rank's chunk in member order, as the binary counter does.
  void combine(std::size_t home, std::size_t in, std::size_t slice, float* result) {
    operands_.clear();
    for (std::size_t n = 0, operand = 0; n < nodes_; ++n) {
      if (n == node()) {
        parts_.clear();
        for (std::size_t i = 0; i < local_; ++i) parts_.push_back(floats(home + (i * local_ + me_) * slice));
        if (here().subtree()) {
          float* sum = const_cast<float*>(parts_.front());
          if (local_ > 1) kernels::sum_tree({.parts = parts_, .out = sum, .count = slice}, host_stream);
          push({sum, here().level()}, slice);
        } else {
          for (const float* part : parts_) push({const_cast<float*>(part), 0}, slice);
        }
        count_within((local_ - 1) * slice * sizeof(float));
      } else {
        for (int t = 0; t < node_members_[n].operands(); ++t)
          push({floats(in + (operand++ * local_ + me_) * slice), node_members_[n].level()}, slice);
        if (!leaders_) count_within(at(node_members_[n].operands()) * slice * sizeof(float));
      }
    }
    while (!equal_levels_ && operands_.size() > 1) {  // the remaining subtrees, from the smallest to the largest
      const Operand last = operands_.back();
      operands_.pop_back();
      add(operands_.back().data, last.data, slice);
    }
    parts_.clear();
    for (const Operand& operand : operands_) parts_.push_back(operand.data);
    kernels::sum_tree({.parts = parts_, .out = result, .count = slice}, host_stream);
  }

  struct Operand {
    float* data;
    int level;
  };
  void push(Operand operand, std::size_t count) {
    // If all nodes are subtrees of one size, their sums are the leaves of one tree and are added in one pass at the
    // end.
    while (!equal_levels_ && !operands_.empty() && operands_.back().level == operand.level) {
      add(operands_.back().data, operand.data, count);
      operand = {operands_.back().data, operand.level + 1};
      operands_.pop_back();
    }
    operands_.push_back(operand);
  }
  static void add(float* to, const float* what, std::size_t count) {
    const float* both[] = {to, what};
    kernels::sum_tree({.parts = both, .out = to, .count = count}, host_stream);
  }

  void add_counters(std::span<std::int64_t> counters, std::size_t capacity) {
    const auto slot = [&](std::size_t i) {
      return reinterpret_cast<std::int64_t*>(scratch(i * capacity * sizeof(std::int64_t)));
    };
    const auto add_from = [&](std::int64_t* to, const std::int64_t* from) {
      for (std::size_t k = 0; k < counters.size(); ++k) to[k] += from[k];
    };
    phase_ = 0;
    std::memcpy(slot(me_), counters.data(), counters.size_bytes());
    barrier();
    if (leaders_) {
      for (std::size_t i = 1; i < local_; ++i) add_from(slot(0), slot(i));
      for (std::size_t step = 1; step < nodes_; ++step) {
        const std::size_t to = (node() + step) % nodes_, from = (node() + nodes_ - step) % nodes_;
        leaders_->receive(0, static_cast<int>(from), slot(local_ + from), counters.size_bytes(), tag());
        leaders_->send(0, static_cast<int>(to), slot(0), counters.size_bytes(), tag());
        count_across(counters.size_bytes());
      }
      finish(*leaders_, 0, *this);
      for (std::size_t n = 0; n < nodes_; ++n)
        if (n != node()) add_from(slot(0), slot(local_ + n));
      count_within((local_ - 1) * counters.size_bytes());
    } else {
      count_within(counters.size_bytes());
    }
    barrier();
    std::memcpy(counters.data(), slot(0), counters.size_bytes());
    barrier();
  }

  NodeGroup group_;
  std::unique_ptr<Endpoint> leaders_;
  const std::vector<NodeMembers>& node_members_;
  std::size_t members_, nodes_, local_, me_, widest_ = 0;
  std::size_t gather_slice_, reduce_slice_;
  bool equal_levels_ = true;
  std::uint64_t phase_ = 0;
  std::vector<const float*> parts_;
  std::vector<Operand> operands_;
};

}  // namespace

std::unique_ptr<Communicator> two_level_communicator(CommunicatorInfo info, std::shared_ptr<SharedMemory> memory,
                                                     std::unique_ptr<Endpoint> leaders) {
  return std::make_unique<TwoLevelCommunicator>(std::move(info), std::move(memory), std::move(leaders));
}

}  // namespace tessera::comm
