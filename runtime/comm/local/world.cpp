// SPDX-License-Identifier: Apache-2.0
// The local world: ranks as threads of one process, for tests.
#include <algorithm>
#include <iterator>
#include <thread>

#include "runtime/base/start_thread.hpp"
#include "runtime/comm/base_world.hpp"
#include "runtime/comm/local/hub.hpp"

namespace tessera {

namespace {

using namespace comm;

class LocalWatchdog final : public Watchdog {
 public:
  LocalWatchdog(Hub& hub, int rank, int world, double timeout_s) : Watchdog(rank, world, timeout_s), hub_(hub) {
    attach(hub.node_status(), hub.statuses(), 0, world);
  }

  void fail(const Error& error) override {
    Watchdog::fail(error);
    hub_.fail(rank_, std::make_exception_ptr(error));
  }

 private:
  std::string failed_elsewhere() const override {
    const int rank = hub_.failed_rank();
    return rank >= 0 ? strfmt("stopped by rank %d", rank) : std::string();
  }
  Hub& hub_;
};

/// Rank within a group: members are in order of their keys.
int index_in(const Hub::Group& group, int rank) {
  const auto is = [rank](const auto& member) { return member.second == rank; };
  return static_cast<int>(std::distance(group.keys.begin(), std::find_if(group.keys.begin(), group.keys.end(), is)));
}

class LocalEndpoint final : public Endpoint {
 public:
  LocalEndpoint(std::shared_ptr<Hub::Group> group, int rank)
      : group_(std::move(group)), rank_(index_in(*group_, rank)), size_(static_cast<int>(group_->keys.size())) {
    group_->mailbox.set_size(group_->keys.size());
  }
  ~LocalEndpoint() override { LocalEndpoint::abandon(); }
  int rank() const override { return rank_; }
  int size() const override { return size_; }
  void receive(int lane, int from, void* data, std::size_t bytes, std::uint64_t tag) override {
    group_->mailbox.post_receive({from, rank_, tag, static_cast<std::byte*>(data), bytes, &open_[lane]});
  }
  bool wait(int lane, double seconds) override { return Mailbox::wait(open_[lane], seconds); }
  void abandon() override {
    for (auto& open : open_) {
      group_->mailbox.drop(open);
      open.count = 0;
    }
  }

 private:
  void start_send(int lane, int to, const void* data, std::size_t bytes, std::uint64_t tag) override {
    auto* from = static_cast<std::byte*>(const_cast<void*>(data));
    group_->mailbox.post_send({rank_, to, tag, from, bytes, &open_[lane]});
  }

  std::shared_ptr<Hub::Group> group_;
  int rank_, size_;
  Mailbox::Open open_[num_lanes];
};

class LocalSharedMemory final : public SharedMemory {
 public:
  LocalSharedMemory(std::shared_ptr<Hub::Group> group, int rank)
      : group_(std::move(group)), rank_(index_in(*group_, rank)), size_(static_cast<int>(group_->keys.size())) {}
  int rank() const override { return rank_; }
  int size() const override { return size_; }
  std::byte* allocate(std::size_t bytes) override { return group_->memory.block(next_++, bytes); }

 private:
  std::shared_ptr<Hub::Group> group_;
  int rank_, size_;
  std::size_t next_ = 0;
};

class LocalWorld final : public BaseWorld {
 public:
  LocalWorld(Hub& hub, int rank, int size, const Topology& topology, double timeout_s)
      : BaseWorld(rank, size), hub_(hub), watchdog_(hub, rank, size, timeout_s) {
    topology_ = topology;
    open_control();
  }
  ~LocalWorld() override { watchdog_.mine().ended.store(1); }
  std::string host() const override { return "local"; }
  void abort(const Error& error) override {
    const Error root = watchdog_.root_or(error);
    hub_.fail(rank_, std::make_exception_ptr(root));
    throw root;
  }

 private:
  Watchdog& watchdog() override { return watchdog_; }
  std::unique_ptr<Endpoint> split_endpoint(int color, int key) override {
    auto group = hub_.join(splits_++, color, key < 0 || color < 0 ? rank_ : key, rank_);
    return color < 0 ? nullptr : std::make_unique<LocalEndpoint>(std::move(group), rank_);
  }
  std::shared_ptr<SharedMemory> split_shared_memory(int color, int key) override {
    auto group = hub_.join(splits_++, color, color < 0 ? rank_ : key, rank_);
    return color < 0 ? nullptr : std::make_shared<LocalSharedMemory>(std::move(group), rank_);
  }

  Hub& hub_;
  LocalWatchdog watchdog_;
  int splits_ = 0;
};

}  // namespace

void run_local(int size, const std::function<void(World&)>& body, bool copies, int ranks_per_node,
               double comm_timeout_s) {
  Hub hub(size);
  const Topology topology{Transport::local, ranks_per_node > 0 ? ranks_per_node : size, copies};
  std::vector<std::thread> threads;
  const auto run = [&](int rank) {
    try {
      LocalWorld world(hub, rank, size, topology, comm_timeout_s);
      body(world);
    } catch (...) { hub.fail(rank, std::current_exception()); }
  };
  for (int rank = 0; rank < size; ++rank) {
    try {
      threads.push_back(start_thread("a rank", [&run, rank] { run(rank); }));
    } catch (...) {  // the ranks that have begun wait for this one: their waits throw
      hub.fail(rank, std::current_exception());
      break;
    }
  }
  for (auto& thread : threads) thread.join();
  if (hub.error()) std::rethrow_exception(hub.error());
}

}  // namespace tessera
