// SPDX-License-Identifier: Apache-2.0
// Collectives as NCCL calls on one stream, each between two events that mark its begin and its end on the device.
#include "runtime/comm/nccl/communicator.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <optional>
#include <thread>

#include "kernels/convert.hpp"
#include "runtime/base/cuda/devices.hpp"
#include "runtime/base/cuda/memory.hpp"
#include "runtime/base/cuda/stream.hpp"
#include "runtime/base/error.hpp"
#include "runtime/comm/collective_clock.hpp"
#include "runtime/comm/nccl/handle.hpp"

namespace tessera::comm {

namespace {

constexpr auto glance = std::chrono::milliseconds(20);

/// Ring buffer of collectives in flight, oldest first: one thread pushes, another pops. Does not allocate.
class UnderWay {
 public:
  static constexpr std::size_t capacity = 256;

  explicit UnderWay(Device device) {
    for (Entry& entry : ring_) {
      entry.begin = cuda::make_event(device, cuda::EventKind::order);
      entry.end = cuda::make_event(device, cuda::EventKind::order);
    }
  }
  ~UnderWay() {
    for (const Entry& entry : ring_)
      for (void* const event : {entry.begin, entry.end})
        if (event != nullptr) cuda::destroy_event(event);
  }
  UnderWay(const UnderWay&) = delete;
  UnderWay& operator=(const UnderWay&) = delete;

  [[nodiscard]] bool full() const { return issued_.load() - ended_.load() == capacity; }
  /// Before the call that enqueues a collective, and after it. The other thread sees it after the second.
  void begin(StreamView stream) { cuda::record(ring_[issued_.load() % capacity].begin, stream.handle); }
  void end(const char* operation, std::uint64_t sequence, StreamView stream) {
    Entry& entry = ring_[issued_.load() % capacity];
    entry.operation = operation;
    entry.sequence = sequence;
    cuda::record(entry.end, stream.handle);
    issued_.fetch_add(1);
  }

  /// Pops completed collectives; returns the sequence number of the last one, 0 if none.
  [[nodiscard]] std::uint64_t take() {
    std::uint64_t last = 0;
    while (ended_.load() < issued_.load() && cuda::passed(oldest().end)) {
      last = oldest().sequence;
      ended_.fetch_add(1);
    }
    return last;
  }
  /// The oldest one that take() has not popped, and what it is called; "" if there is none.
  [[nodiscard]] std::pair<OldestCollective, const char*> oldest_one() const {
    if (ended_.load() >= issued_.load()) return {{}, ""};
    return {{oldest().sequence, cuda::passed(oldest().begin)}, oldest().operation};
  }

 private:
  struct Entry {
    void *begin = nullptr, *end = nullptr;
    const char* operation = "";
    std::uint64_t sequence = 0;
  };
  [[nodiscard]] const Entry& oldest() const { return ring_[ended_.load() % capacity]; }
  std::array<Entry, capacity> ring_{};
  std::atomic<std::uint64_t> issued_{0}, ended_{0};
};

std::size_t grown(std::optional<std::size_t> before, std::optional<std::size_t> after) {
  return before && after ? std::max(*before, *after) - *before : 0;
}

class NcclCommunicator final : public BaseCommunicator {
 public:
  NcclCommunicator(CommunicatorInfo info, Device device, const NcclId& id)
      : BaseCommunicator(std::move(info), Completion::later),
        device_(device),
        memory_before_(cuda::process_memory(device)),
        handle_(id, size(), rank(), device, [this] { poll(); }),
        under_way_(device),
        nothing_(cuda::allocate(device, sizeof(std::int64_t))),
        own_memory_(grown(memory_before_, cuda::process_memory(device))),
        watcher_([this] { look(); }) {}
  ~NcclCommunicator() override {
    stopping_.store(true);
    watcher_.join();
    cuda::release(device_, nothing_);
  }

  bool shares_memory() const override { return false; }
  SharedRegion share(std::size_t) override { return {}; }
  void set_staging(std::span<std::byte>) override {}
  /// What NCCL took of the device when it was initialized, by NVML; it may take more at the first collective. 0 where
  /// NVML does not list this process: free memory alone would have what other processes take meanwhile.
  std::size_t own_memory() const override { return own_memory_; }
  Device device() const override { return device_; }
  void run_on(StreamView stream) override { stream_ = stream; }

  using BaseCommunicator::all_reduce;
  void all_reduce(CollectiveLabel label, std::span<std::int64_t> counters) override {
    Issue issue(*this, label, counters.size_bytes());
    begin();
    handle_.sum(counters.data(), counters.size(), stream_);
    count_round(counters.size_bytes());
    end(label.operation);
  }
  void broadcast(CollectiveLabel label, std::span<std::byte> bytes, int root) override {
    Issue issue(*this, label, bytes.size());
    begin();
    handle_.broadcast(bytes.data(), bytes.size(), root, stream_);
    if ((rank() + 1) % size() != root) count_sent((rank() + 1) % size(), size() > 1 ? bytes.size() : 0);
    end(label.operation);
  }
  void barrier(CollectiveLabel label) override {
    Issue issue(*this, label, 0);
    begin();
    handle_.sum(reinterpret_cast<std::int64_t*>(nothing_), 1, stream_);
    end(label.operation);
  }

 private:
  void gather(const std::byte* mine, std::byte* full, std::size_t chunk) override {
    begin();
    if (chunk > 0) handle_.all_gather(mine, full, chunk, stream_);
    count_round(chunk * static_cast<std::size_t>(size() - 1));
    end("gather");
  }
  void exchange(const std::byte* parts, std::byte* received, std::size_t chunk) override {
    begin();
    if (chunk > 0) handle_.all_to_all(parts, received, chunk, size(), stream_);
    for (int to = 0; to < size(); ++to)
      if (to != rank()) count_sent(to, chunk);
    end("all_to_all");
  }
  /// NCCL sums 16-bit inputs in their own type into this rank's chunk of them; the sums are then widened.
  void reduce(SourceBuffer full, float* mine, std::size_t chunk) override {
    begin();
    if (chunk > 0 && full.dtype == DType::f32) {
      handle_.reduce_scatter(full.data, mine, chunk, full.dtype, stream_);
    } else if (chunk > 0) {
      const Shape shape{static_cast<std::int64_t>(chunk)};
      std::byte* const own = static_cast<std::byte*>(const_cast<void*>(full.data)) +
                             static_cast<std::size_t>(rank()) * chunk * size_of(full.dtype);
      handle_.reduce_scatter(full.data, own, chunk, full.dtype, stream_);
      kernels::convert_serial({.from = {own, full.dtype, shape, device_}, .to = {mine, shape, device_}}, stream_);
    }
    count_round(chunk * size_of(full.dtype) * static_cast<std::size_t>(size() - 1));
    end("reduce");
  }

  /// Counts what a ring algorithm sends to the next member, whatever algorithm NCCL takes.
  void count_round(std::size_t bytes) {
    if (size() > 1) count_sent((rank() + 1) % size(), bytes);
  }

  void begin() {
    TESSERA_ASSERT(stream_.handle != nullptr, "run_on() comes before the first collective");
    progress();
    while (under_way_.full()) {
      progress();  // the device is behind the host: the watcher's clock tells whether a peer is late
      poll();
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    under_way_.begin(stream_);
  }
  void end(const char* operation) { under_way_.end(operation, issued(), stream_); }

  /// The polling thread.
  void look() {
    CollectiveClock clock(Watchdog::Clock::now());
    const auto watchdog = info().watchdog;
    try {
      cuda::use(device_);
      while (!stopping_.load()) {
        handle_.check();
        if (const auto ended = under_way_.take(); ended > 0) completed(ended);
        const auto [oldest, operation] = under_way_.oldest_one();
        const auto since = clock.waiting_since(Watchdog::Clock::now(), oldest);
        if (oldest.sequence != 0) watchdog->poll({operation, since});
        std::this_thread::sleep_for(glance);
      }
    } catch (const Error& error) {
      watchdog->fail(error);
      handle_.abort();  // frees the threads of this rank that wait for the device; they find the failure
    } catch (const std::exception& error) {
      watchdog->fail(Error(ExitCode::internal, error.what()));
      handle_.abort();
    }
  }

  Device device_;
  std::optional<std::size_t> memory_before_;
  StreamView stream_{nullptr};
  NcclHandle handle_;
  UnderWay under_way_;
  std::byte* nothing_;
  std::atomic<bool> stopping_{false};
  std::size_t own_memory_;
  std::thread watcher_;  // last member: it uses the others
};

}  // namespace

std::unique_ptr<Communicator> nccl_communicator(CommunicatorInfo info, Device device,
                                                std::unique_ptr<Communicator> host) {
  NcclId id{};
  if (info.rank == 0) id = make_nccl_id();
  host->broadcast({"nccl", "id", -1}, id, 0);
  return std::make_unique<NcclCommunicator>(std::move(info), device, id);
}

}  // namespace tessera::comm
