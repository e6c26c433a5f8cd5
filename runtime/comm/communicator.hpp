#pragma once
// Communicator: collectives along one mesh axis. Narrow and coarse, chosen at run time; transports stand behind it:
//   mpi     any ranks; moves bytes by MPI and adds them itself
//   node    ranks of one host over shared windows; two-level across nodes (leaders exchange by mpi)
//   local   ranks as threads of one process (tests)
// A communicator is used by one thread at a time, in stream order: every member calls the same collectives in the same
// order. A call blocks until its own contract is met, backing off or sleeping, never spinning; while it waits it
// watches for late peers (comm_timeout) and throws Error (communication) naming rank, step and collective.

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "runtime/base/device.hpp"
#include "runtime/base/dtype.hpp"
#include "runtime/base/stream.hpp"

namespace tessera {

/// What a collective is called in the trace, the watchdog's line and the record of issued collectives.
struct CollectiveLabel {
  const char* operation = "";  // "gather", "reduce", "norm", …; static storage
  const char* unit = "";       // "h.3"; must outlive the call
  int micro = -1;              // micro-batch of the schedule, -1: none
};

/// Memory that every rank of a group on one node reads in place: per_rank bytes for each member, contiguous in member
/// order.
struct SharedRegion {
  std::byte* base = nullptr;  // null: this transport does not share memory
  std::size_t bytes_per_rank = 0;
  int first = 0, count = 0;  // members whose parts lie here (all of the axis on one node; the node's own in two-level)
  explicit operator bool() const { return base != nullptr; }
};

/// What a sum over ranks reads: fp32, or bf16 / fp16, which are widened as they are added. Sums are fp32.
struct SourceBuffer {
  const void* data = nullptr;
  DType dtype = DType::f32;
  SourceBuffer(const float* data_) : data(data_) {}
  SourceBuffer(const void* data_, DType dtype_) : data(data_), dtype(dtype_) {}
  /// From element i on.
  [[nodiscard]] SourceBuffer from(std::size_t i) const {
    return {static_cast<const std::byte*>(data) + i * size_of(dtype), dtype};
  }
};

/// Bytes this rank has sent, payload only, counted where they are sent (or, over shared memory, where they are read).
struct TrafficCount {
  std::uint64_t within_node = 0;
  std::uint64_t across_nodes = 0;
  std::uint64_t collectives = 0;
  friend bool operator==(const TrafficCount&, const TrafficCount&) = default;
};

class Communicator {
 public:
  virtual ~Communicator() = default;

  /// Coordinate of this rank along the axis, and the axis' extent.
  [[nodiscard]] virtual int rank() const = 0;
  [[nodiscard]] virtual int size() const = 0;
  /// True if peers read each other's share()d memory, so that a gathered buffer can be the master shards themselves.
  [[nodiscard]] virtual bool shares_memory() const = 0;
  /// Where the memory lies that the calls take. On a device a call works in the order of run_on's stream, and its
  /// contract is met there, not on return: what the stream is given later sees the result. `words` and `bytes` below
  /// lie there too.
  [[nodiscard]] virtual Device device() const { return host_device; }
  /// Start-up, where device() is not the host: the stream in whose order all calls work. The axes of a rank share one,
  /// so that no two of their collectives are in flight at a time.
  virtual void run_on(StreamView stream) { (void)stream; }

  /// Collective, start-up only. Parts are `bytes_per_rank` each, in member order, without gaps; each owner touches its
  /// own part first. Zero-filled. Lives as long as the communicator. Returns a null region where shares_memory() is
  /// false. Throws Error (data: /dev/shm too small) on every rank alike.
  [[nodiscard]] virtual SharedRegion share(std::size_t bytes_per_rank) = 0;

  /// After it, full[i·chunk, (i+1)·chunk) holds member i's chunk. `mine` may be the caller's own place inside `full`
  /// (then it is not moved). Where `full` is a share()d region of bytes_per_rank == chunk and mine is in place, nothing
  /// is copied: the call orders the owners' writes before everybody's reads. No order is given to later writes of an
  /// owner against the peers' reads: whoever writes its part next must have met every reader in a collective in
  /// between.
  virtual void all_gather(CollectiveLabel label, const std::byte* mine, std::byte* full, std::size_t chunk_bytes) = 0;

  /// mine[k] = sum over members i of full_i[rank·chunk + k], in the documented order (kernels/reduce.hpp:
  /// binary-counter tree over members, low bits first), in fp32. `mine` may be the caller's own chunk inside `full` if
  /// that is fp32; other chunks of `full` are not changed (over NCCL this rank's own chunk of two-byte terms is, and
  /// sums are rounded to their type on the way). On return `full` may be overwritten: no peer reads it any more.
  virtual void reduce_scatter(CollectiveLabel label, SourceBuffer full, float* mine, std::size_t chunk) = 0;

  /// reduce_scatter + all_gather on equal chunks; count must be a multiple of size(). Same order of sums. `sums` may be
  /// `terms` themselves if they are fp32; else `terms` are changed no further than by reduce_scatter.
  virtual void all_reduce(CollectiveLabel label, SourceBuffer terms, float* sums, std::size_t count) = 0;
  /// In place.
  void all_reduce(CollectiveLabel label, float* data, std::size_t count) {
    all_reduce(label, SourceBuffer(data), data, count);
  }

  /// Integer sums (any order gives the same bits).
  virtual void all_reduce(CollectiveLabel label, std::span<std::int64_t> counters) = 0;

  virtual void broadcast(CollectiveLabel label, std::span<std::byte> bytes, int root) = 0;
  virtual void barrier(CollectiveLabel label) = 0;

  /// Scratch that collectives may use, at least staging_bytes(...) of traffic.hpp; the arena owns it. Called once,
  /// before the first reduce_scatter or all_gather that needs it.
  virtual void set_staging(std::span<std::byte> staging) = 0;

  [[nodiscard]] virtual TrafficCount traffic() const = 0;
};

}  // namespace tessera
