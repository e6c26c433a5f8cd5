// SPDX-License-Identifier: Apache-2.0
#pragma once
// Communicator: collectives along one mesh axis, over the transport that the run has chosen:
//   mpi     any ranks; moves bytes by MPI and adds them itself
//   node    ranks of one host, over shared memory; over several hosts two-level, whose node leaders exchange messages
//   nccl    device memory
//   local   ranks are threads of one process (tests)
// One thread at a time uses a communicator, and every member calls the same collectives in the same order. A call
// blocks until its contract is met. It sleeps while it waits, looks for late peers (comm_timeout), and throws Error
// (communication) with rank, step and collective.

#include <cstddef>
#include <cstdint>
#include <span>

#include "runtime/base/device.hpp"
#include "runtime/base/dtype.hpp"
#include "runtime/base/stream.hpp"

namespace tessera {

/// Name of a collective in the trace, in the watchdog's message and in the record of issued collectives.
struct CollectiveLabel {
  const char* operation = "";  // "gather", "reduce_scatter", "norm", …; static storage
  const char* unit = "";       // "h.3"; must outlive the call
  int micro = -1;              // micro-batch of the schedule, -1: none
};

/// Memory that all ranks of a group on one node read in place: `bytes_per_rank` for each member, in member order,
/// without gaps.
struct SharedRegion {
  std::byte* base = nullptr;  // null: this transport does not share memory
  std::size_t bytes_per_rank = 0;
  int first = 0, count = 0;  // members whose parts are here: all of the axis, or this node's (two-level)
  explicit operator bool() const { return base != nullptr; }
};

/// Input of a sum over ranks: pointer and type. bf16 and fp16 are widened as they are added; sums are fp32.
struct SourceBuffer {
  const void* data = nullptr;
  DType dtype = DType::f32;
  SourceBuffer(const float* data_) : data(data_) {}
  SourceBuffer(const void* data_, DType dtype_) : data(data_), dtype(dtype_) {}
  /// The buffer from element i on.
  [[nodiscard]] SourceBuffer from(std::size_t i) const {
    return {static_cast<const std::byte*>(data) + i * size_of(dtype), dtype};
  }
};

/// Payload bytes that this rank has sent; over shared memory, that it has read from its peers.
struct TrafficCount {
  std::uint64_t within_node = 0;
  std::uint64_t across_nodes = 0;
  std::uint64_t collectives = 0;
  TrafficCount& operator+=(const TrafficCount& other) {
    within_node += other.within_node;
    across_nodes += other.across_nodes;
    collectives += other.collectives;
    return *this;
  }
  friend bool operator==(const TrafficCount&, const TrafficCount&) = default;
};

class Communicator {
 public:
  virtual ~Communicator() = default;

  /// Coordinate of this rank along the axis, and the size of the axis.
  [[nodiscard]] virtual int rank() const = 0;
  [[nodiscard]] virtual int size() const = 0;
  /// True if peers read each other's share()d memory, so that a gathered buffer can be the master shards themselves.
  [[nodiscard]] virtual bool shares_memory() const = 0;
  /// Device of all pointers that the calls take, `counters` and `bytes` included. On a GPU a call works in the order of
  /// the stream given to run_on: its contract is met there, not on return.
  [[nodiscard]] virtual Device device() const { return host_device; }
  /// On a GPU: the stream in whose order later calls work; set before the first one. The caller orders the earlier
  /// calls before the later ones (by events of the schedule). The communicators of a rank use two streams at most, so
  /// that at most two of their collectives are in flight at a time; a schedule with exchanges adds a third.
  virtual void run_on(StreamView stream) { (void)stream; }

  /// Collective, start-up only: allocates `bytes_per_rank` for each member, in member order, without gaps, zero-filled.
  /// Each owner touches its own part first (NUMA). Lives as long as the communicator. Null where shares_memory() is
  /// false. Throws Error (data: /dev/shm is too small) on every rank.
  [[nodiscard]] virtual SharedRegion share(std::size_t bytes_per_rank) = 0;

  /// full[i·chunk, (i+1)·chunk) = member i's `mine`. `mine` may be the caller's own chunk inside `full`, which is then
  /// not copied. If `full` is a share()d region with bytes_per_rank == chunk and `mine` lies in it, the call copies
  /// nothing: it is a barrier after which everybody may read. It does not order an owner's next writes after its peers'
  /// reads: the owner needs another collective with them in between.
  virtual void all_gather(CollectiveLabel label, const std::byte* mine, std::byte* full, std::size_t chunk_bytes) = 0;

  /// received[i·chunk, (i+1)·chunk) = chunk `rank` of member i's `parts`. The buffers, of size() chunks each, do not
  /// overlap. On return no peer reads `parts` any more.
  virtual void all_to_all(CollectiveLabel label, const std::byte* parts, std::byte* received,
                          std::size_t chunk_bytes) = 0;

  /// mine[k] = sum over members i of full_i[rank·chunk + k] in fp32, added in the order of kernels/reduce.hpp
  /// (binary-counter tree over members). `mine` may be the caller's own chunk inside `full` if that is fp32. Other
  /// chunks of `full` keep their content. On return no peer reads `full` any more. NCCL overwrites this rank's chunk of
  /// a 16-bit `full`, and rounds sums to its type on the way.
  virtual void reduce_scatter(CollectiveLabel label, SourceBuffer full, float* mine, std::size_t chunk) = 0;

  /// reduce_scatter, then all_gather; `count` is a multiple of size(). `sums` may be the memory of `source` if that is
  /// fp32.
  virtual void all_reduce(CollectiveLabel label, SourceBuffer source, float* sums, std::size_t count) = 0;
  /// In place.
  void all_reduce(CollectiveLabel label, float* data, std::size_t count) {
    all_reduce(label, SourceBuffer(data), data, count);
  }

  /// Sum of int64 counters; the order of additions does not matter.
  virtual void all_reduce(CollectiveLabel label, std::span<std::int64_t> counters) = 0;

  virtual void broadcast(CollectiveLabel label, std::span<std::byte> bytes, int root) = 0;
  virtual void barrier(CollectiveLabel label) = 0;

  /// Scratch for collectives, at least staging_bytes() (topology.hpp) bytes; the arena owns it. Called once, before the
  /// first collective that needs it.
  virtual void set_staging(std::span<std::byte> staging) = 0;

  [[nodiscard]] virtual TrafficCount traffic() const = 0;
  /// Bytes that the system has given for the communicator itself, as charged to this rank: what transport_bytes plans.
  [[nodiscard]] virtual std::size_t own_memory() const { return 0; }
};

}  // namespace tessera
