// SPDX-License-Identifier: Apache-2.0
#pragma once
// NcclHandle: an NCCL communicator in non-blocking mode, so that Tessera's watchdog can report late and dead peers.

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <mutex>

#include "runtime/base/device.hpp"
#include "runtime/base/dtype.hpp"
#include "runtime/base/stream.hpp"

namespace tessera::comm {

/// ncclUniqueId: one rank makes it and sends it to the others.
using NcclId = std::array<std::byte, 128>;
/// Throws Error (usage) if libnccl cannot be opened.
[[nodiscard]] NcclId make_nccl_id();

/// One thread makes the collective calls and destroys the handle; check() and abort() may come from any. Each NCCL call
/// is made under a lock, and only while `aborted_` is false. The thread that sets it frees the communicator: once, and
/// not during a call. No call blocks: one that returns ncclInProgress is polled, and `poll` throws when the run has
/// failed or the wait is too long.
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
  /// Chunk i of `parts` goes to rank i, and chunk i of `received` is what rank i has sent: `size` chunks of `bytes`.
  void all_to_all(const std::byte* parts, std::byte* received, std::size_t bytes, int size, StreamView stream);
  void sum(std::int64_t* counters, std::size_t count, StreamView stream);
  void broadcast(void* data, std::size_t bytes, int root, StreamView stream);

  /// Throws Error (communication) if NCCL has reported an asynchronous error.
  void check() const;
  /// ncclCommAbort, once: ends waits for missing peers, of kernels too. Later calls throw Error (communication).
  void abort() noexcept;

 private:
  /// Makes one call, and polls until NCCL has taken it up.
  template <class Call>
  void call(const char* name, Call function);

  Poll poll_;
  Device device_;
  mutable std::mutex mutex_;  // of the next two, and of every NCCL call
  void* comm_ = nullptr;
  bool aborted_ = false;  // or destroyed
};

}  // namespace tessera::comm
