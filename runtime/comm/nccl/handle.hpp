#pragma once
// NcclHandle: an NCCL communicator in non-blocking mode, so that Tessera's watchdog can report late and dead peers.

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>

#include "runtime/base/device.hpp"
#include "runtime/base/dtype.hpp"
#include "runtime/base/stream.hpp"

namespace tessera::comm {

/// ncclUniqueId: one rank makes it and sends it to the others.
using NcclId = std::array<std::byte, 128>;
/// Throws Error (usage) if libnccl cannot be opened.
[[nodiscard]] NcclId make_nccl_id();

/// One thread makes the calls; check() and abort() may come from any. A call that returns ncclInProgress is polled:
/// `poll` throws when the run has failed or the wait is too long.
class NcclHandle {
 public:
  using Poll = std::function<void()>;

  /// Collective over the group. Throws Error (communication) with NCCL's message, after an abort, if it fails.
  NcclHandle(const NcclId& id, int size, int rank, Device device, Poll poll);
  /// Finalizes with the peers, for at most two seconds; after a failure aborts alone.
  ~NcclHandle();
  NcclHandle(const NcclHandle&) = delete;
  NcclHandle& operator=(const NcclHandle&) = delete;

  // Stream-ordered; device pointers; in place as NCCL defines it (mine = full + rank·count).
  void all_gather(const void* mine, void* full, std::size_t bytes, StreamView stream);
  /// fp32, bf16 or fp16; sums have the same type.
  void reduce_scatter(const void* full, void* mine, std::size_t count, DType dtype, StreamView stream);
  void sum(std::int64_t* counters, std::size_t count, StreamView stream);
  void broadcast(void* data, std::size_t bytes, int root, StreamView stream);

  /// Throws Error (communication) if NCCL has reported an asynchronous error.
  void check() const;
  /// ncclCommAbort: ends waits for missing peers, of kernels too. No call may follow.
  void abort() noexcept;
  [[nodiscard]] bool aborted() const { return aborted_.load(); }

 private:
  void wait_until_taken_up(int result, const char* call);

  Poll poll_;
  Device device_;
  void* comm_ = nullptr;
  std::atomic<bool> aborted_{false};
};

}  // namespace tessera::comm
