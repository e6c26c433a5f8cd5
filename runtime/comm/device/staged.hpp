// SPDX-License-Identifier: Apache-2.0
#pragma once
// A communicator for device memory on top of one for host memory. Data passes through pinned buffers in slices, whose
// copies overlap the transfers. For ranks that share a GPU, and for builds without NCCL.

#include <cstddef>
#include <memory>

#include "runtime/base/device.hpp"
#include "runtime/comm/communicator.hpp"

namespace tessera {

struct StagedOptions {
  Device device;                // the host, in tests: plain copies
  std::size_t slice_bytes = 0;  // bytes of a member's chunk in a slice; 0: staged_slice()
  /// direct: MPI accepts device pointers (cuda/aware.hpp), so that gathers need no staging. Sums always pass through
  /// the host, which adds them.
  enum class Gather : unsigned char { staged, direct } gather = Gather::staged;
};

/// Every collective of `inner`, which has more than one rank, on memory of `device`, with the same order of sums.
/// set_staging keeps staged_bytes(size) of pinned memory and passes the rest to `inner`. A call returns when its last
/// copy to the device is enqueued. Takes ownership.
[[nodiscard]] std::unique_ptr<Communicator> staged(std::unique_ptr<Communicator> inner, const StagedOptions& options);

/// Bytes of each member's chunk in a slice, a multiple of 512; and of the staging for it: two turns of all members'
/// slices and a sum.
[[nodiscard]] std::size_t staged_slice(int size);
[[nodiscard]] std::size_t staged_bytes(int size, std::size_t slice_bytes);

}  // namespace tessera
