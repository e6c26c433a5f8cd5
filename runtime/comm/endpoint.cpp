// SPDX-License-Identifier: Apache-2.0
// Collectives over messages: every member sends to every other one, and adds in the documented order.
#include "runtime/comm/endpoint.hpp"

#include <algorithm>
#include <cstring>

#include "runtime/base/error.hpp"
#include "runtime/comm/sum_to_f32.hpp"

namespace tessera::comm {

void finish(Endpoint& endpoint, int lane, BaseCommunicator& communicator) {
  communicator.progress();
  try {
    while (!endpoint.wait(lane, 0.05)) communicator.poll();
  } catch (...) {
    endpoint.abandon();
    throw;
  }
}

void barrier(Endpoint& endpoint, BaseCommunicator& communicator, std::uint64_t tag) {
  const int size = endpoint.size(), rank = endpoint.rank();
  char nothing[2] = {};
  for (int step = 1; step < size; step *= 2) {
    endpoint.receive(0, (rank - step + size) % size, &nothing[0], 0, tag);
    endpoint.send(0, (rank + step) % size, &nothing[1], 0, tag);
    finish(endpoint, 0, communicator);
  }
}

void broadcast(Endpoint& endpoint, BaseCommunicator& communicator, std::span<std::byte> bytes, int root,
               std::uint64_t tag, const std::vector<NodeMembers>* leaders) {
  const int size = endpoint.size(), distance = (endpoint.rank() - root + size) % size;
  int step = 1;
  while (step < size && !(distance & step)) step *= 2;
  if (distance != 0) {
    endpoint.receive(0, (distance - step + root) % size, bytes.data(), bytes.size(), tag);
    finish(endpoint, 0, communicator);
  }
  for (step /= 2; step > 0; step /= 2) {
    if (distance + step >= size) continue;
    const int to = (distance + step + root) % size;
    endpoint.send(0, to, bytes.data(), bytes.size(), tag);
    communicator.count_sent(leaders ? (*leaders)[static_cast<std::size_t>(to)].first : to, bytes.size());
  }
  finish(endpoint, 0, communicator);
}

namespace {

class MessageCommunicator final : public BaseCommunicator {
 public:
  MessageCommunicator(CommunicatorInfo where, std::unique_ptr<Endpoint> endpoint)
      : BaseCommunicator(std::move(where)), endpoint_(std::move(endpoint)), parts_(static_cast<std::size_t>(size())) {}

  bool shares_memory() const override { return false; }
  SharedRegion share(std::size_t) override { return {}; }
  void set_staging(std::span<std::byte> staging) override { staging_ = staging; }

  using BaseCommunicator::all_reduce;
  void all_reduce(CollectiveLabel label, std::span<std::int64_t> counters) override {
    Issue issue(*this, label, counters.size_bytes());
    if (size() == 1) return;
    const std::size_t count = counters.size();
    if (counters_.size() < count * parts_.size()) counters_.resize(count * parts_.size());
    for (int peer = 0; peer < size(); ++peer) {
      if (peer == rank()) continue;
      endpoint_->receive(0, peer, counters_.data() + static_cast<std::size_t>(peer) * count, counters.size_bytes(),
                         tag());
      endpoint_->send(0, peer, counters.data(), counters.size_bytes(), tag());
      count_sent(peer, counters.size_bytes());
    }
    finish(*endpoint_, 0, *this);
    for (std::size_t peer = 0; peer < parts_.size(); ++peer)
      for (std::size_t k = 0; k < count && static_cast<int>(peer) != rank(); ++k)
        counters[k] += counters_[peer * count + k];
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
    if (rank() == 0) endpoint_->receive(0, from, data, count, tag());
    if (rank() == from) endpoint_->send(0, 0, data, count, tag());
    if (size() > 1) finish(*endpoint_, 0, *this);
  }

 private:
  void gather(const std::byte* mine, std::byte* full, std::size_t chunk) override {
    std::byte* own = full + static_cast<std::size_t>(rank()) * chunk;
    if (own != mine && chunk > 0) std::memcpy(own, mine, chunk);
    if (size() == 1) return;
    for (int step = 1; step < size(); ++step) {  // each starts with another peer
      const int to = (rank() + step) % size(), from = (rank() - step + size()) % size();
      endpoint_->receive(0, from, full + static_cast<std::size_t>(from) * chunk, chunk, tag());
      endpoint_->send(0, to, own, chunk, tag());
      count_sent(to, chunk);
    }
    finish(*endpoint_, 0, *this);
  }

  void exchange(const std::byte* parts, std::byte* received, std::size_t chunk) override {
    const std::size_t own = static_cast<std::size_t>(rank()) * chunk;
    if (chunk > 0) std::memcpy(received + own, parts + own, chunk);
    if (size() == 1) return;
    for (int step = 1; step < size(); ++step) {
      const int to = (rank() + step) % size(), from = (rank() - step + size()) % size();
      endpoint_->receive(0, from, received + static_cast<std::size_t>(from) * chunk, chunk, tag());
      endpoint_->send(0, to, parts + static_cast<std::size_t>(to) * chunk, chunk, tag());
      count_sent(to, chunk);
    }
    finish(*endpoint_, 0, *this);
  }

  /// Receives a slice of every peer's chunk into the staging on one lane while it adds the slices received on the
  /// other.
  void reduce(SourceBuffer full, float* mine, std::size_t chunk) override {
    const std::size_t own = static_cast<std::size_t>(rank()) * chunk, peers = parts_.size() - 1,
                      element = size_of(full.dtype);
    if (peers == 0) {
      parts_[0] = full.data;
      return sum_to_f32(parts_, full.dtype, mine, chunk);
    }
    const std::size_t capacity = staging_.size() / peers / element;
    const std::size_t slice = chunk <= capacity ? chunk : capacity / 2 / 16 * 16;
    TESSERA_ASSERT(slice > 0 || chunk == 0, "staging of %zu bytes for %zu peers", staging_.size(), peers);
    const auto post = [&](std::size_t first, int lane) {
      const std::size_t count = std::min(slice, chunk - first);
      for (int step = 1; step < size(); ++step) {
        const int to = (rank() + step) % size(), from = (rank() - step + size()) % size();
        endpoint_->receive(lane, from, staged(from, lane, slice * element), count * element, tag());
        endpoint_->send(lane, to, full.from(static_cast<std::size_t>(to) * chunk + first).data, count * element, tag());
        count_sent(to, count * element);
      }
    };
    int lane = 0;
    if (chunk > 0) post(0, lane);
    for (std::size_t first = 0; first < chunk; first += slice, lane = 1 - lane) {
      if (first + slice < chunk) post(first + slice, 1 - lane);
      finish(*endpoint_, lane, *this);
      for (int i = 0; i < size(); ++i)
        parts_[static_cast<std::size_t>(i)] =
            i == rank() ? full.from(own + first).data : staged(i, lane, slice * element);
      sum_to_f32(parts_, full.dtype, mine + first, std::min(slice, chunk - first));
    }
  }

  std::byte* staged(int from, int lane, std::size_t slice_bytes) const {
    const auto slot = static_cast<std::size_t>(from < rank() ? from : from - 1) +
                      static_cast<std::size_t>(lane) * (parts_.size() - 1);
    return staging_.data() + slot * slice_bytes;
  }

  std::unique_ptr<Endpoint> endpoint_;
  std::span<std::byte> staging_;
  std::vector<const void*> parts_;
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
