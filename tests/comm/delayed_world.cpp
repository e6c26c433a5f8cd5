// SPDX-License-Identifier: Apache-2.0
// The delayed communicator: sleeps, then calls the inner one.
#include "tests/comm/delayed_world.hpp"

#include <chrono>
#include <thread>

namespace tessera::test {

namespace {

class Delayed final : public Communicator {
 public:
  Delayed(std::unique_ptr<Communicator> inner, const Delay& delay) : inner_(std::move(inner)), delay_(delay) {}

  int rank() const override { return inner_->rank(); }
  int size() const override { return inner_->size(); }
  bool shares_memory() const override { return inner_->shares_memory(); }
  Device device() const override { return inner_->device(); }
  void run_on(StreamView stream) override { inner_->run_on(stream); }
  SharedRegion share(std::size_t bytes_per_rank) override { return inner_->share(bytes_per_rank); }
  void set_staging(std::span<std::byte> staging) override { inner_->set_staging(staging); }
  TrafficCount traffic() const override { return inner_->traffic(); }
  std::size_t own_memory() const override { return inner_->own_memory(); }

  void all_gather(CollectiveLabel label, const std::byte* mine, std::byte* full, std::size_t chunk_bytes) override {
    sleep(delay_.gather_s, chunk_bytes * static_cast<std::size_t>(size()));
    inner_->all_gather(label, mine, full, chunk_bytes);
  }
  void all_to_all(CollectiveLabel label, const std::byte* parts, std::byte* received,
                  std::size_t chunk_bytes) override {
    sleep(delay_.reduce_s, chunk_bytes * static_cast<std::size_t>(size()));
    inner_->all_to_all(label, parts, received, chunk_bytes);
  }
  void reduce_scatter(CollectiveLabel label, SourceBuffer full, float* mine, std::size_t chunk) override {
    sleep(delay_.reduce_s, chunk * size_of(full.dtype) * static_cast<std::size_t>(size()));
    inner_->reduce_scatter(label, full, mine, chunk);
  }
  using Communicator::all_reduce;
  void all_reduce(CollectiveLabel label, SourceBuffer source, float* sums, std::size_t count) override {
    sleep(delay_.reduce_s, count * size_of(source.dtype));
    inner_->all_reduce(label, source, sums, count);
  }
  void all_reduce(CollectiveLabel label, std::span<std::int64_t> counters) override {
    sleep(delay_.norm_s, counters.size_bytes());
    inner_->all_reduce(label, counters);
  }
  void broadcast(CollectiveLabel label, std::span<std::byte> bytes, int root) override {
    inner_->broadcast(label, bytes, root);
  }
  void barrier(CollectiveLabel label) override { inner_->barrier(label); }

 private:
  void sleep(double seconds, std::size_t bytes) const {
    if (delay_.disturb) delay_.disturb();
    std::this_thread::sleep_for(
        std::chrono::duration<double>(seconds + delay_.per_byte_s * static_cast<double>(bytes)));
  }

  std::unique_ptr<Communicator> inner_;
  Delay delay_;
};

}  // namespace

std::unique_ptr<Communicator> delayed(std::unique_ptr<Communicator> inner, const Delay& delay) {
  return std::make_unique<Delayed>(std::move(inner), delay);
}

std::unique_ptr<Communicator> DelayedWorld::communicator(const Mesh& mesh, AxisSet axes) {
  auto made = inner_.communicator(mesh, axes);
  const bool is_slow = delay_.gather_s > 0 || delay_.reduce_s > 0 || delay_.norm_s > 0 || delay_.per_byte_s > 0;
  return is_slow || delay_.disturb != nullptr ? delayed(std::move(made), delay_) : std::move(made);
}

}  // namespace tessera::test
