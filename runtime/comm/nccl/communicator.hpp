#pragma once
// The communicator of device memory over NCCL: stream order, watched. Each axis has its own.

#include <memory>

#include "runtime/base/device.hpp"
#include "runtime/comm/base_communicator.hpp"

namespace tessera {

/// Whether this build has the nccl transport.
#ifdef TESSERA_NCCL_BUILT
inline constexpr bool nccl_built = true;
#else
inline constexpr bool nccl_built = false;
#endif

}  // namespace tessera

namespace tessera::comm {

/// Collective over the group. `host` joins the same members over host memory: it carries the id. Sums are NCCL's (its
/// order is its own); terms of two bytes are summed in their own type, rounded at each hop. A thread of its own looks
/// at what is under way: it keeps the record of what has ended, names who is late, and frees this rank when the run has
/// failed.
[[nodiscard]] std::unique_ptr<Communicator> nccl_communicator(CommunicatorInfo info, Device device,
                                                              std::unique_ptr<Communicator> host);

}  // namespace tessera::comm
