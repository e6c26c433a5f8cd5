// SPDX-License-Identifier: Apache-2.0
// All members on one node. Peers read each other's shared buffers; other buffers are copied through the scratch.
#include "runtime/comm/node/communicator.hpp"

#include <algorithm>
#include <cstring>

#include "runtime/base/error.hpp"
#include "runtime/comm/sum_to_f32.hpp"

namespace tessera::comm {

namespace {

constexpr std::size_t node_sum_block = 8192;  // elements summed at a time: partial sums stay in the cache

class NodeCommunicator final : public BaseCommunicator {
 public:
  NodeCommunicator(CommunicatorInfo where, std::shared_ptr<SharedMemory> memory, Sharing sharing)
      : BaseCommunicator(std::move(where)),
        memory_(std::move(memory)),
        group_(memory_, node_scratch),
        sharing_(sharing),
        parts_(static_cast<std::size_t>(size())) {}

  bool shares_memory() const override { return sharing_ == Sharing::in_place; }
  void set_staging(std::span<std::byte>) override {}
  std::size_t own_memory() const override { return group_.measured_bytes(); }

  SharedRegion share(std::size_t bytes_per_rank) override {
    if (!shares_memory()) return {};
    const std::size_t bytes = bytes_per_rank * parts_.size();
    Issue issue(*this, {"share", "", -1}, bytes);
    group_.barrier(*this, 0);  // the allocation has no timeout, this barrier has one
    std::byte* base = bytes > 0 ? memory_->allocate(bytes) : nullptr;
    if (!base) return {};
    // First touch by the owner, for NUMA. Then all may read.
    std::memset(base + static_cast<std::size_t>(rank()) * bytes_per_rank, 0, bytes_per_rank);
    regions_.push_back({base, bytes});
    group_.barrier(*this, 1);
    return {base, bytes_per_rank, 0, size()};
  }

  using BaseCommunicator::all_reduce;
  void all_reduce(CollectiveLabel label, std::span<std::int64_t> counters) override {
    Issue issue(*this, label, counters.size_bytes());
    const std::size_t capacity = group_.scratch_bytes() / sizeof(std::int64_t);
    for (std::size_t first = 0; first < counters.size(); first += capacity) {
      const auto slice = counters.subspan(first, std::min(capacity, counters.size() - first));
      std::memcpy(group_.scratch(rank()), slice.data(), slice.size_bytes());
      group_.barrier(*this, 2 * first);
      for (int peer = 0; peer < size(); ++peer) {
        const auto* theirs = reinterpret_cast<const std::int64_t*>(group_.scratch(peer));
        for (std::size_t k = 0; k < slice.size() && peer != rank(); ++k) slice[k] += theirs[k];
      }
      count_within((parts_.size() - 1) * slice.size_bytes());
      group_.barrier(*this, 2 * first + 1);
    }
  }

  void broadcast(CollectiveLabel label, std::span<std::byte> bytes, int root) override {
    Issue issue(*this, label, bytes.size());
    const std::size_t capacity = group_.scratch_bytes();
    for (std::size_t first = 0; first < bytes.size(); first += capacity) {
      const auto slice = bytes.subspan(first, std::min(capacity, bytes.size() - first));
      if (rank() == root) std::memcpy(group_.scratch(root), slice.data(), slice.size());
      group_.barrier(*this, 2 * first);
      if (rank() != root) {
        std::memcpy(slice.data(), group_.scratch(root), slice.size());
        count_within(slice.size());
      }
      group_.barrier(*this, 2 * first + 1);
    }
  }

  void barrier(CollectiveLabel label) override {
    Issue issue(*this, label, 0);
    group_.barrier(*this, 0);
  }

 private:
  struct Region {
    std::byte* base;
    std::size_t bytes;
  };

  SharedAddress find(const void* data, std::size_t bytes) const {
    const auto* first = static_cast<const std::byte*>(data);
    for (std::size_t i = 0; i < regions_.size(); ++i)
      if (first >= regions_[i].base && first + bytes <= regions_[i].base + regions_[i].bytes)
        return {static_cast<std::int64_t>(i), first - regions_[i].base};
    return {};
  }
  std::byte* at(SharedAddress address) const {
    return regions_[static_cast<std::size_t>(address.region)].base + address.offset;
  }

  void gather(const std::byte* mine, std::byte* full, std::size_t chunk) override {
    // If every member's `full` is the same shared region, each owner writes its chunk and nothing is copied.
    const SharedAddress address = find(full, chunk * parts_.size());
    const bool is_full_region = address && address.offset == 0 &&
                                regions_[static_cast<std::size_t>(address.region)].bytes == chunk * parts_.size();
    std::byte* own = full + static_cast<std::size_t>(rank()) * chunk;
    if (own != mine && chunk > 0) std::memcpy(own, mine, chunk);
    group_.publish(find(own, chunk), is_full_region ? address : SharedAddress{});
    group_.barrier(*this, 0);
    bool in_place = true, readable = true;
    for (int peer = 0; peer < size(); ++peer) {
      in_place = in_place && group_.to(peer) && group_.to(peer) == group_.to(0);
      readable = readable && group_.from(peer);
    }
    if (in_place) return;
    if (readable) {
      for (int step = 1; step < size(); ++step) {
        const int peer = (rank() + step) % size();
        std::byte* to = full + static_cast<std::size_t>(peer) * chunk;
        if (chunk > 0) std::memcpy(to, at(group_.from(peer)), chunk);
      }
      group_.barrier(*this, 1);
    } else {
      gather_by_scratch(full, chunk);
    }
    count_within((parts_.size() - 1) * chunk);
  }

  void gather_by_scratch(std::byte* full, std::size_t chunk) {
    const std::size_t capacity = group_.scratch_bytes();
    for (std::size_t first = 0; first < chunk; first += capacity) {
      const std::size_t slice = std::min(capacity, chunk - first);
      std::memcpy(group_.scratch(rank()), full + static_cast<std::size_t>(rank()) * chunk + first, slice);
      group_.barrier(*this, 2 + 2 * first);
      for (int peer = 0; peer < size(); ++peer)
        if (peer != rank())
          std::memcpy(full + static_cast<std::size_t>(peer) * chunk + first, group_.scratch(peer), slice);
      group_.barrier(*this, 3 + 2 * first);
    }
  }

  void exchange(const std::byte* parts, std::byte* received, std::size_t chunk) override {
    group_.publish(find(parts, chunk * parts_.size()), {});
    group_.barrier(*this, 200);
    bool readable = true;
    for (int peer = 0; peer < size(); ++peer) readable = readable && group_.from(peer);
    const std::size_t own = static_cast<std::size_t>(rank()) * chunk,
                      capacity = readable ? chunk : group_.scratch_bytes() / parts_.size();
    for (std::size_t first = 0; first < chunk; first += capacity) {
      const std::size_t slice = std::min(capacity, chunk - first);
      for (std::size_t to = 0; !readable && to < parts_.size(); ++to)
        std::memcpy(group_.scratch(rank()) + to * slice, parts + to * chunk + first, slice);
      if (!readable) group_.barrier(*this, 202 + 2 * first);
      for (int peer = 0; peer < size(); ++peer)
        std::memcpy(
            received + static_cast<std::size_t>(peer) * chunk + first,
            readable ? at(group_.from(peer)) + own : group_.scratch(peer) + static_cast<std::size_t>(rank()) * slice,
            slice);
      group_.barrier(*this, 203 + 2 * first);  // no peer reads this rank's buffer any more
    }
    count_within((parts_.size() - 1) * chunk);
  }

  void reduce(SourceBuffer full, float* mine, std::size_t chunk) override {
    const std::size_t element = size_of(full.dtype), bytes = chunk * parts_.size() * element;
    group_.publish(find(full.data, bytes), {});
    group_.barrier(*this, 100);
    bool readable = true;
    for (int peer = 0; peer < size(); ++peer) readable = readable && group_.from(peer);
    if (readable) {
      for (std::size_t first = 0; first < chunk; first += node_sum_block) {
        for (int peer = 0; peer < size(); ++peer)
          parts_[static_cast<std::size_t>(peer)] =
              at(group_.from(peer)) + (static_cast<std::size_t>(rank()) * chunk + first) * element;
        sum_to_f32(parts_, full.dtype, mine + first, std::min(node_sum_block, chunk - first));
      }
      group_.barrier(*this, 101);  // no peer reads this rank's buffer any more
    } else {
      reduce_by_scratch(full, mine, chunk);
    }
    count_within((parts_.size() - 1) * chunk * element);
  }

  void reduce_by_scratch(SourceBuffer full, float* mine, std::size_t chunk) {
    const std::size_t element = size_of(full.dtype),
                      capacity = group_.scratch_bytes() / element / parts_.size() / 16 * 16;
    for (std::size_t first = 0; first < chunk; first += capacity) {
      const std::size_t slice = std::min(capacity, chunk - first);
      for (std::size_t to = 0; to < parts_.size(); ++to)
        std::memcpy(group_.scratch(rank()) + to * slice * element, full.from(to * chunk + first).data, slice * element);
      group_.barrier(*this, 102 + 2 * first);
      for (int peer = 0; peer < size(); ++peer)
        parts_[static_cast<std::size_t>(peer)] =
            group_.scratch(peer) + static_cast<std::size_t>(rank()) * slice * element;
      sum_to_f32(parts_, full.dtype, mine + first, slice);
      group_.barrier(*this, 103 + 2 * first);
    }
  }

  std::shared_ptr<SharedMemory> memory_;
  NodeGroup group_;
  Sharing sharing_;
  std::vector<Region> regions_;
  std::vector<const void*> parts_;
};

}  // namespace

std::unique_ptr<Communicator> node_communicator(CommunicatorInfo info, std::shared_ptr<SharedMemory> memory,
                                                Sharing sharing) {
  return std::make_unique<NodeCommunicator>(std::move(info), std::move(memory), sharing);
}

}  // namespace tessera::comm
