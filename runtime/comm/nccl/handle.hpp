#pragma once
// NcclHandle: one communicator of NCCL's, made and used without ever blocking in NCCL, so that a
// late or dead peer is ours to name.

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>

#include "runtime/base/device.hpp"
#include "runtime/base/dtype.hpp"
#include "runtime/base/stream.hpp"

namespace tessera::comm {

/// What the members of a group have in common before they know each other: made by one, sent to all by other means.
using NcclId = std::array<std::byte, 128>;
/// Throws Error (usage) where libnccl cannot be opened.
[[nodiscard]] NcclId make_nccl_id();

/// Calls come from one thread; check() and abort() from any. Every call that NCCL has not taken up at once is waited
/// for under `poll`, which throws when the run has failed or the wait has lasted too long.
class NcclHandle {
 public:
  using Poll = std::function<void()>;

  /// Collective over the group: returns when all have come. Throws Error (communication) with NCCL's own
  /// words, and aborts, if it cannot be.
  NcclHandle(const NcclId& id, int size, int rank, Device device, Poll poll);
  /// Ends it with the others, for two seconds at most; alone after a failure.
  ~NcclHandle();
  NcclHandle(const NcclHandle&) = delete;
  NcclHandle& operator=(const NcclHandle&) = delete;

  // In stream order; device pointers; in place as NCCL has it (mine = full + rank·count).
  void all_gather(const void* mine, void* full, std::size_t bytes, StreamView stream);
  /// fp32, bf16 or f16: the sums, too.
  void reduce_scatter(const void* full, void* mine, std::size_t count, DType dtype, StreamView stream);
  void sum(std::int64_t* counters, std::size_t count, StreamView stream);
  void broadcast(void* data, std::size_t bytes, int root, StreamView stream);

  /// Throws Error (communication) if NCCL has found out, since the last call, that something went wrong.
  void check() const;
  /// Frees whoever waits for a peer that will not come, kernels on the device included. Nothing may be called after it.
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
