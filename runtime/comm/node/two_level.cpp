// Two-level collectives: the ranks of a node share scratch, and the first of them, the leader, exchanges with the
// leaders of other nodes. Data moves in pieces that fit the scratch. A node whose members are a subtree of the
// reduction tree sends their sum, any other node sends each member's data, so that the bits equal those of the other
// transports. The scratch holds fp32: 16-bit inputs are widened on the way in.
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
        gather_piece_(gather_piece(node_members_)),
        reduce_piece_(reduce_piece(node_members_) / sizeof(float)) {
    parts_.reserve(members_);
    terms_.reserve(members_);
    widest_ = 0;
    for (const auto& group : node_members_) {
      widest_ = std::max(widest_, at(group.count));
      equal_levels_ = equal_levels_ && group.level() == node_members_.front().level();
    }
    equal_levels_ = equal_levels_ && std::all_of(node_members_.begin(), node_members_.end(),
                                                 [](const NodeMembers& r) { return r.terms() == 1; });
  }

  bool shares_memory() const override { return false; }
  SharedRegion share(std::size_t) override { return {}; }
  void set_staging(std::span<std::byte>) override {}
  std::size_t own_memory() const override { return group_.measured_bytes(); }

  using BaseCommunicator::all_reduce;
  void all_reduce(CollectiveLabel label, std::span<std::int64_t> counters) override {
    Issue issue(*this, label, counters.size_bytes());
    // A slot for each member here and one for each node; `room` counters fit each on the widest node.
    const std::size_t room = two_level_scratch / (widest_ + nodes_) / sizeof(std::int64_t);
    for (std::size_t first = 0; first < counters.size(); first += room)
      add_counters(counters.subspan(first, std::min(room, counters.size() - first)), room);
  }

  void broadcast(CollectiveLabel label, std::span<std::byte> bytes, int root) override {
    Issue issue(*this, label, bytes.size());
    const std::size_t root_node = node_index_of(node_members_, root);
    for (std::size_t first = 0; first < bytes.size(); first += two_level_scratch) {
      const auto piece = bytes.subspan(first, std::min(two_level_scratch, bytes.size() - first));
      const auto scratch = group_.scratch().first(piece.size());
      if (rank() == root) std::memcpy(scratch.data(), piece.data(), piece.size());
      group_.barrier(*this, 3 * first);
      if (leaders_) comm::broadcast(*leaders_, *this, scratch, static_cast<int>(root_node), tag(), &node_members_);
      group_.barrier(*this, 3 * first + 1);
      if (rank() != root) {
        std::memcpy(piece.data(), scratch.data(), piece.size());
        if (!leaders_ || node() == root_node) count_within(piece.size());
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

  void gather(const std::byte* mine, std::byte* full, std::size_t chunk) override {
    phase_ = 0;
    for (std::size_t first = 0; first < chunk; first += gather_piece_) {
      const std::size_t piece = std::min(gather_piece_, chunk - first);
      // Scratch: one piece of every member, in member order.
      std::memcpy(scratch(at(rank()) * piece), mine + first, piece);
      barrier();
      if (leaders_) exchange(piece);
      barrier();
      for (std::size_t i = 0; i < members_; ++i) {
        std::byte* to = full + i * chunk + first;
        if (i != at(rank())) std::memcpy(to, scratch(i * piece), piece);
        else if (to != mine + first) std::memcpy(to, mine + first, piece);
      }
      count_within((local_ - 1) * piece + (leaders_ ? 0 : (members_ - local_) * piece));
      barrier();
    }
  }

  void exchange(std::size_t piece) {
    for (std::size_t step = 1; step < nodes_; ++step) {
      const std::size_t to = (node() + step) % nodes_, from = (node() + nodes_ - step) % nodes_;
      leaders_->receive(0, static_cast<int>(from), scratch(at(node_members_[from].first) * piece),
                        at(node_members_[from].count) * piece, tag());
      leaders_->send(0, static_cast<int>(to), scratch(at(here().first) * piece), local_ * piece, tag());
      count_across(local_ * piece);
    }
    finish(*leaders_, 0, *this);
  }

  /// Scratch regions: home (local operands of this node's chunks), out (local operands of another node's chunks), in
  /// (received from other nodes), each as [operand][destination][piece].
  void reduce(SourceBuffer full, float* mine, std::size_t chunk) override {
    phase_ = 0;
    // Their offsets do not depend on the size of the piece: the last piece is shorter, and is written while a peer
    // still adds the one before.
    const std::size_t home = 0, out = local_ * local_ * reduce_piece_, in = out + local_ * widest_ * reduce_piece_;
    for (std::size_t first = 0; first < chunk; first += reduce_piece_) {
      const std::size_t piece = std::min(reduce_piece_, chunk - first);
      for (std::size_t step = 1; step < nodes_; ++step) {
        const std::size_t to = (node() + step) % nodes_, from = (node() + nodes_ - step) % nodes_;
        lay_out(full, chunk, first, piece, node_members_[to], out);
        barrier();
        if (here().subtree() && local_ > 1) {
          add_slice(out, at(node_members_[to].count) * piece);
          barrier();
        }
        if (leaders_) {
          const std::size_t sent = at(here().terms() * node_members_[to].count) * piece * sizeof(float);
          leaders_->receive(0, static_cast<int>(from), floats(in + received_before(from) * local_ * piece),
                            at(node_members_[from].terms()) * local_ * piece * sizeof(float), tag());
          leaders_->send(0, static_cast<int>(to), floats(out), sent, tag());
          count_across(sent);
          finish(*leaders_, 0, *this);
        } else {
          count_within(at(node_members_[to].count) * piece * sizeof(float));
        }
        if (step + 1 == nodes_) lay_out(full, chunk, first, piece, here(), home);
        barrier();
      }
      combine(home, in, piece, mine + first);
      // The next piece is first written to `out`, which no rank reads now; `home` and `in` are written after its first
      // barrier.
    }
    if (chunk > 0) barrier();  // the scratch is free for the next collective
  }

  /// Copies this rank's operands for the members of `group` to the scratch.
  void lay_out(SourceBuffer full, std::size_t chunk, std::size_t first, std::size_t piece, const NodeMembers& group,
               std::size_t offset) {
    float* to = floats(offset + me_ * at(group.count) * piece);
    for (std::size_t d = 0; d < at(group.count); ++d)
      widen(full.from((at(group.first) + d) * chunk + first), to + d * piece, piece);
  }

  /// Sums the local operands at `offset`, `count` floats each, into the first one; each rank of the node sums a slice.
  void add_slice(std::size_t offset, std::size_t count) {
    const std::size_t begin = count * me_ / local_, end = count * (me_ + 1) / local_;
    parts_.clear();
    for (std::size_t i = 0; i < local_; ++i) parts_.push_back(floats(offset + i * count + begin));
    kernels::sum_tree({.parts = parts_, .out = floats(offset + begin), .count = end - begin}, host_stream);
  }

  /// Operands received from nodes before `other`, this node left out.
  [[nodiscard]] std::size_t received_before(std::size_t other) const {
    std::size_t terms = 0;
    for (std::size_t n = 0; n < other; ++n)
      if (n != node()) terms += at(node_members_[n].terms());
    return terms;
  }

  /// Sums the operands of this rank's chunk in member order, as the binary counter does.
  void combine(std::size_t home, std::size_t in, std::size_t piece, float* result) {
    terms_.clear();
    for (std::size_t n = 0, term = 0; n < nodes_; ++n) {
      if (n == node()) {
        parts_.clear();
        for (std::size_t i = 0; i < local_; ++i) parts_.push_back(floats(home + (i * local_ + me_) * piece));
        if (here().subtree()) {
          float* sum = const_cast<float*>(parts_.front());
          if (local_ > 1) kernels::sum_tree({.parts = parts_, .out = sum, .count = piece}, host_stream);
          push({sum, here().level()}, piece);
        } else {
          for (const float* part : parts_) push({const_cast<float*>(part), 0}, piece);
        }
        count_within((local_ - 1) * piece * sizeof(float));
      } else {
        for (int t = 0; t < node_members_[n].terms(); ++t)
          push({floats(in + (term++ * local_ + me_) * piece), node_members_[n].level()}, piece);
        if (!leaders_) count_within(at(node_members_[n].terms()) * piece * sizeof(float));
      }
    }
    while (!equal_levels_ && terms_.size() > 1) {  // the remaining subtrees, from the smallest to the largest
      const Term last = terms_.back();
      terms_.pop_back();
      add(terms_.back().data, last.data, piece);
    }
    parts_.clear();
    for (const Term& term : terms_) parts_.push_back(term.data);
    kernels::sum_tree({.parts = parts_, .out = result, .count = piece}, host_stream);
  }

  struct Term {
    float* data;
    int level;
  };
  void push(Term term, std::size_t count) {
    // If all nodes are subtrees of one size, their sums are the leaves of one tree and are added in one pass at the
    // end.
    while (!equal_levels_ && !terms_.empty() && terms_.back().level == term.level) {
      add(terms_.back().data, term.data, count);
      term = {terms_.back().data, term.level + 1};
      terms_.pop_back();
    }
    terms_.push_back(term);
  }
  static void add(float* to, const float* what, std::size_t count) {
    const float* both[] = {to, what};
    kernels::sum_tree({.parts = both, .out = to, .count = count}, host_stream);
  }

  void add_counters(std::span<std::int64_t> counters, std::size_t room) {
    const auto slot = [&](std::size_t i) {
      return reinterpret_cast<std::int64_t*>(scratch(i * room * sizeof(std::int64_t)));
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
  std::size_t gather_piece_, reduce_piece_;
  bool equal_levels_ = true;
  std::uint64_t phase_ = 0;
  std::vector<const float*> parts_;
  std::vector<Term> terms_;
};

}  // namespace

std::unique_ptr<Communicator> two_level_communicator(CommunicatorInfo info, std::shared_ptr<SharedMemory> memory,
                                                     std::unique_ptr<Endpoint> leaders) {
  return std::make_unique<TwoLevelCommunicator>(std::move(info), std::move(memory), std::move(leaders));
}

}  // namespace tessera::comm
