#pragma once
// A communicator of device memory made of one of host memory: bytes pass through pinned buffers, piece by piece, while
// the pieces before and behind are copied. For ranks that share a device, and for builds without NCCL.

#include <cstddef>
#include <memory>

#include "runtime/base/device.hpp"
#include "runtime/comm/communicator.hpp"

namespace tessera {

struct StagedOptions {
  Device device;                // the host: the same, with plain copies (tests)
  std::size_t piece_bytes = 0;  // of a member's chunk, at a time; 0: what staged_piece says
  /// Whether this MPI takes device pointers (runtime/comm/cuda/aware.hpp): then a gather passes nothing through the
  /// host. Sums always do: they are ours.
  enum class Gather : unsigned char { staged, direct } gather = Gather::staged;
};

/// Every collective of `inner` on memory of `device`: the same sums in the same order. set_staging takes
/// staged_bytes(size) for itself, pinned, and gives the rest to `inner`. A call blocks until its last bytes are on
/// their way back in stream order. Takes ownership.
[[nodiscard]] std::unique_ptr<Communicator> staged(std::unique_ptr<Communicator> inner, const StagedOptions& options);

/// Bytes of each member's chunk that travel at a time, a multiple of 512; and the staging for it, two turns
/// of everybody's pieces and a sum.
[[nodiscard]] std::size_t staged_piece(int size);
[[nodiscard]] std::size_t staged_bytes(int size, std::size_t piece_bytes);

}  // namespace tessera
