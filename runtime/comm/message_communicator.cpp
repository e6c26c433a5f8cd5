// SPDX-License-Identifier: Apache-2.0
// Collectives over messages. endpoint.hpp says who sends how much to whom.
#include <algorithm>
#include <cstring>
#include <optional>

#include "runtime/base/at.hpp"
#include "runtime/base/error.hpp"
#include "runtime/comm/endpoint.hpp"
#include "runtime/comm/message_rounds.hpp"
#include "runtime/comm/sum_to_f32.hpp"
#include "runtime/comm/tree_reduce.hpp"

namespace tessera::comm {

namespace {

class MessageCommunicator final : public BaseCommunicator {
 public:
  MessageCommunicator(CommunicatorInfo where, std::unique_ptr<Endpoint> endpoint)
      : BaseCommunicator(std::move(where)), endpoint_(std::move(endpoint)) {}

  bool shares_memory() const override { return false; }
  SharedRegion share(std::size_t) override { return {}; }
  void set_staging(std::span<std::byte> staging) override {
    staging_ = staging;
    if (size() > 1) tree_.emplace(size(), rank());
  }

  using BaseCommunicator::all_reduce;
  void all_reduce(CollectiveLabel label, std::span<std::int64_t> counters) override {
    Issue issue(*this, label, counters.size_bytes());
    if (size() == 1) return;
    if (size() <= tree_radix) add_directly(counters);
    else add_by_doubling(counters);
  }

  void broadcast(CollectiveLabel label, std::span<std::byte> bytes, int root) override {
    Issue issue(*this, label, bytes.size());
    if (size() > 1) comm::broadcast(*endpoint_, *this, bytes, root, tag(), nullptr);
  }

  void barrier(CollectiveLabel label) override {
    Issue issue(*this, label, 0);
    if (size() > 1) comm::barrier(*endpoint_, *this, tag());
  }

  void send_to_root(std::byte* data, std::size_t count, int from) {
    Issue issue(*this, {"gather", "text", -1}, count);
    if (rank() == 0) receive(0, from, data, count);
    if (rank() == from) endpoint_->send(0, 0, data, count, tag());
    if (size() > 1) finish(0);
  }

  [[nodiscard]] MessageCount messages() const override { return endpoint_ ? endpoint_->count() : MessageCount{}; }

 private:
  void send(int lane, int to, const void* data, std::size_t bytes) {
    endpoint_->send(lane, to, data, bytes, tag());
    count_sent(to, bytes);
  }
  void receive(int lane, int from, void* data, std::size_t bytes) {
    endpoint_->receive(lane, from, data, bytes, tag());
  }
  void finish(int lane) { comm::finish(*endpoint_, lane, *this); }
  /// The member `distance` behind this one, or before it if negative.
  [[nodiscard]] int neighbor(int distance) const { return (rank() + distance + size()) % size(); }

  void add_directly(std::span<std::int64_t> counters) {
    const std::size_t count = counters.size();
    counters_.resize(std::max(counters_.size(), count * at(size())));
    for (int peer = 0; peer < size(); ++peer) {
      if (peer == rank()) continue;
      receive(0, peer, counters_.data() + at(peer) * count, counters.size_bytes());
      send(0, peer, counters.data(), counters.size_bytes());
    }
    finish(0);
    for (int peer = 0; peer < size(); ++peer)
      if (peer != rank()) add(counters, counters_.data() + at(peer) * count);
  }

  void add_by_doubling(std::span<std::int64_t> counters) {
    counters_.resize(std::max(counters_.size(), counters.size()));
    visit_doubling_rounds(size(), rank(), [&](int peer, bool sends, Receives receives) {
      if (sends) send(0, peer, counters.data(), counters.size_bytes());
      std::int64_t* const to = receives == Receives::terms ? counters_.data() : counters.data();
      if (receives != Receives::nothing) receive(0, peer, to, counters.size_bytes());
      finish(0);
      if (receives == Receives::terms) add(counters, counters_.data());
    });
  }
  static void add(std::span<std::int64_t> sums, const std::int64_t* terms) {
    for (std::size_t k = 0; k < sums.size(); ++k) sums[k] += terms[k];
  }

  void gather(const std::byte* mine, std::byte* full, std::size_t chunk) override {
    std::byte* own = full + at(rank()) * chunk;
    if (own != mine && chunk > 0) std::memcpy(own, mine, chunk);
    if (size() == 1) return;
    if (size() > tree_radix) return gather_by_doubling(full, chunk);
    for (int step = 1; step < size(); ++step) {  // each starts with another peer
      receive(0, neighbor(-step), full + at(neighbor(-step)) * chunk, chunk);
      send(0, neighbor(step), own, chunk);
    }
    finish(0);
  }

  void gather_by_doubling(std::byte* full, std::size_t chunk) {
    /// Visits the chunks (last - count, last], which may go on at the end of the buffer.
    const auto each_part = [&](int last, int count, const auto& visit) {
      const int wrapped = std::max(0, count - 1 - last);
      if (wrapped > 0) visit(full + at(size() - wrapped) * chunk, at(wrapped) * chunk);
      visit(full + at(last - (count - wrapped) + 1) * chunk, at(count - wrapped) * chunk);
    };
    visit_gather_rounds(size(), [&](int held, int count) {
      const int from = neighbor(-held), to = neighbor(held);
      each_part(from, count, [&](std::byte* data, std::size_t bytes) { receive(0, from, data, bytes); });
      each_part(rank(), count, [&](std::byte* data, std::size_t bytes) { send(0, to, data, bytes); });
      finish(0);
    });
  }

  void exchange(const std::byte* parts, std::byte* received, std::size_t chunk) override {
    const std::size_t own = at(rank()) * chunk;
    if (chunk > 0) std::memcpy(received + own, parts + own, chunk);
    const auto post = [&](int first, int lane) {
      for (int step = first; step < std::min(first + tree_radix, size()); ++step) {
        receive(lane, neighbor(-step), received + at(neighbor(-step)) * chunk, chunk);
        send(lane, neighbor(step), parts + at(neighbor(step)) * chunk, chunk);
      }
    };
    if (size() > 1) post(1, 0);
    for (int first = 1, lane = 0; first < size(); first += tree_radix, lane = 1 - lane) {
      post(first + tree_radix, 1 - lane);
      finish(lane);
    }
  }

  void reduce(SourceBuffer full, float* mine, std::size_t chunk) override {
    if (size() == 1) {
      const void* const part[] = {full.data};
      return sum_to_f32(part, full.dtype, mine, chunk);
    }
    TESSERA_ASSERT(tree_.has_value(), "a reduce of %d members has no staging", size());
    tree_->run(*endpoint_, *this, full, mine, chunk, staging_);
  }

  std::unique_ptr<Endpoint> endpoint_;
  std::span<std::byte> staging_;
  std::optional<TreeReduce> tree_;
  std::vector<std::int64_t> counters_;
};

}  // namespace

std::unique_ptr<Communicator> message_communicator(CommunicatorInfo info, std::unique_ptr<Endpoint> endpoint) {
  return std::make_unique<MessageCommunicator>(std::move(info), std::move(endpoint));
}

void send_to_root(Communicator& communicator, std::byte* data, std::size_t count, int from) {
  static_cast<MessageCommunicator&>(communicator).send_to_root(data, count, from);
}

}  // namespace tessera::comm
