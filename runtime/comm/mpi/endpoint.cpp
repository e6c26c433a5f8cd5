// SPDX-License-Identifier: Apache-2.0
// Endpoint over MPI_Isend, MPI_Irecv and MPI_Testall with growing sleeps between tests.
#include <mpi.h>
#include <sched.h>

#include <algorithm>
#include <chrono>
#include <thread>
#include <vector>

#include "runtime/base/at.hpp"
#include "runtime/comm/mpi/mpi.hpp"

namespace tessera::comm {

namespace {

class MpiEndpoint final : public Endpoint {
 public:
  MpiEndpoint(int communicator, std::vector<bool> elsewhere)
      : handle_(communicator), comm_(MPI_Comm_f2c(communicator)), elsewhere_(std::move(elsewhere)) {
    std::lock_guard lock(mpi_mutex());
    TESSERA_MPI(MPI_Comm_rank(comm_, &rank_));
    TESSERA_MPI(MPI_Comm_size(comm_, &size_));
    int* limit = nullptr;
    int found = 0;
    TESSERA_MPI(MPI_Comm_get_attr(comm_, MPI_TAG_UB, static_cast<void*>(&limit), &found));
    tags_ = static_cast<std::uint64_t>(found ? std::min(*limit, (1 << 30) - 1) : 32767);
    for (auto& lane : lanes_) lane.reserve(2 * static_cast<std::size_t>(size_));
  }
  ~MpiEndpoint() override { release_mpi(handle_); }

  int rank() const override { return rank_; }
  int size() const override { return size_; }

  void receive(int lane, int from, void* data, std::size_t bytes, std::uint64_t tag) override {
    std::lock_guard lock(mpi_mutex());
    auto* to = static_cast<char*>(data);
    do {
      const std::size_t part = std::min(bytes, longest_to(from));
      TESSERA_MPI(MPI_Irecv(to, static_cast<int>(part), MPI_BYTE, from, short_tag(tag), comm_, &add(lane)));
      to += part;
      bytes -= part;
    } while (bytes > 0);
  }

  bool wait(int lane, double seconds) override {
    using Clock = std::chrono::steady_clock;
    using std::chrono::microseconds;
    const auto begin = Clock::now();
    const auto end = begin + std::chrono::duration<double>(seconds);
    if (fresh_) {
      waited_ = {};
      yields_ = 8;
    }
    for (;;) {
      if (done(lane)) return fresh_ = true;
      if (yields_ > 0) {
        --yields_;
        ::sched_yield();
      } else {
        // Sleeps a sixteenth of the time waited so far: a short wait loses little, a long one costs no CPU.
        const auto so_far = waited_ + (Clock::now() - begin);
        std::this_thread::sleep_for(std::clamp<Clock::duration>(so_far / 16, microseconds(20), microseconds(10000)));
      }
      const auto now = Clock::now();
      if (now < end) continue;
      waited_ += now - begin;
      fresh_ = false;
      return false;
    }
  }

 private:
  void start_send(int lane, int to, const void* data, std::size_t bytes, std::uint64_t tag) override {
    std::lock_guard lock(mpi_mutex());
    const auto* from = static_cast<const char*>(data);
    do {
      const std::size_t part = std::min(bytes, longest_to(to));
      TESSERA_MPI(MPI_Isend(from, static_cast<int>(part), MPI_BYTE, to, short_tag(tag), comm_, &add(lane)));
      from += part;
      bytes -= part;
    } while (bytes > 0);
  }

  /// Bytes of one message. MPI counts are int. Between hosts messages stay below the size (Open MPI over TCP: 64 KiB
  /// with a header) from which MPI asks the receiver first: receives are posted before, and a link that waits for
  /// answers is idle.
  static constexpr std::size_t longest = std::size_t{1} << 30, longest_between_hosts = std::size_t{60} << 10;
  [[nodiscard]] std::size_t longest_to(int peer) const {
    return elsewhere_[at(peer)] ? longest_between_hosts : longest;
  }

  [[nodiscard]] int short_tag(std::uint64_t tag) const { return static_cast<int>(tag % tags_); }
  MPI_Request& add(int lane) { return lanes_[lane].emplace_back(MPI_REQUEST_NULL); }

  bool done(int lane) {
    auto& requests = lanes_[lane];
    int flag = 1;
    {
      std::lock_guard lock(mpi_mutex());
      TESSERA_MPI(MPI_Testall(static_cast<int>(requests.size()), requests.data(), &flag, MPI_STATUSES_IGNORE));
    }
    if (!flag) return false;
    requests.clear();
    waited_ = {};
    return true;
  }

  int handle_;
  MPI_Comm comm_;
  std::vector<bool> elsewhere_;
  int rank_ = 0, size_ = 0, yields_ = 0;
  std::uint64_t tags_ = 0;
  std::vector<MPI_Request> lanes_[num_lanes];
  bool fresh_ = true;  // the next wait is a new one, and does not continue one that timed out
  std::chrono::steady_clock::duration waited_{};
};

}  // namespace

std::unique_ptr<Endpoint> mpi_endpoint(int communicator, std::vector<bool> elsewhere) {
  return std::make_unique<MpiEndpoint>(communicator, std::move(elsewhere));
}

}  // namespace tessera::comm
