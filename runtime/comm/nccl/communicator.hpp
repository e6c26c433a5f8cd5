// SPDX-License-Identifier: Apache-2.0
#pragma once
// Communicator for device memory over NCCL. Calls are stream-ordered, and the watchdog covers them. One per group.

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

/// Collective over the group. `host` connects the same members over host memory and broadcasts the NCCL id. The order
/// of sums is NCCL's; 16-bit inputs are summed in their own type, rounded at each hop. A thread polls the collectives
/// in flight: it records completed ones, reports late ranks, and aborts NCCL when the run has failed.
[[nodiscard]] std::unique_ptr<Communicator> nccl_communicator(CommunicatorInfo info, Device device,
                                                              std::unique_ptr<Communicator> host);

}  // namespace tessera::comm
