// SPDX-License-Identifier: Apache-2.0
// The record of issued collectives, and the collectives made of a transport's gather and reduce.
#include "runtime/comm/base_communicator.hpp"

#include "runtime/base/error.hpp"
#include "runtime/base/hash.hpp"

namespace tessera::comm {

BaseCommunicator::BaseCommunicator(CommunicatorInfo info, Completion completion)
    : info_(std::move(info)),
      completion_(completion),
      node_(node_index_of(info_.node_members, info_.rank)),
      record_(&info_.watchdog->record(info_.index)),
      waiting_{"start", Watchdog::Clock::now()} {}

void BaseCommunicator::count_sent(int to, std::size_t bytes) {
  const bool same_node = to >= here().first && to < here().first + here().count;
  (same_node ? traffic_.within_node : traffic_.across_nodes) += bytes;
}

BaseCommunicator::Issue::Issue(BaseCommunicator& communicator, const CollectiveLabel& label, std::size_t bytes)
    : communicator_(communicator), exceptions_(std::uncaught_exceptions()) {
  auto& c = communicator_;
  ++c.traffic_.collectives;
  c.record_->write(label, bytes);
  c.waiting_.operation = label.operation;
  c.progress();
  const std::uint64_t name = hash64(label.unit, hash64(":", hash64(label.operation)));
  c.tag_ = hash64(++c.issued_, hash64(bytes, hash64(static_cast<std::uint64_t>(label.micro), name)));
}

BaseCommunicator::Issue::~Issue() {
  auto& c = communicator_;
  if (c.completion_ == Completion::on_return && std::uncaught_exceptions() == exceptions_)
    c.record_->left.store(c.issued_, std::memory_order_release);
}

void BaseCommunicator::all_gather(CollectiveLabel label, const std::byte* mine, std::byte* full,
                                  std::size_t chunk_bytes) {
  Issue issue(*this, label, chunk_bytes * info_.members.size());
  gather(mine, full, chunk_bytes);
}

void BaseCommunicator::all_to_all(CollectiveLabel label, const std::byte* parts, std::byte* received,
                                  std::size_t chunk_bytes) {
  Issue issue(*this, label, chunk_bytes * info_.members.size());
  exchange(parts, received, chunk_bytes);
}

void BaseCommunicator::reduce_scatter(CollectiveLabel label, SourceBuffer full, float* mine, std::size_t chunk) {
  Issue issue(*this, label, chunk * info_.members.size() * size_of(full.dtype));
  reduce(full, mine, chunk);
}

void BaseCommunicator::all_reduce(CollectiveLabel label, SourceBuffer source, float* sums, std::size_t count) {
  Issue issue(*this, label, count * size_of(source.dtype));
  const std::size_t members = info_.members.size();
  TESSERA_ASSERT(count % members == 0, "%zu elements over %zu members", count, members);
  const std::size_t chunk = count / members;
  float* own = sums + static_cast<std::size_t>(rank()) * chunk;
  reduce(source, own, chunk);
  gather(reinterpret_cast<const std::byte*>(own), reinterpret_cast<std::byte*>(sums), chunk * sizeof(float));
}

MessageCount message_count(const Communicator& communicator) {
  const auto* const base = dynamic_cast<const BaseCommunicator*>(&communicator);
  return base == nullptr ? MessageCount{} : base->messages();
}

}  // namespace tessera::comm
