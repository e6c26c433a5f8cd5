// SPDX-License-Identifier: Apache-2.0
#pragma once
// Where the states of a unit are kept: in the memory that the run computes in, or offloaded: on
// the host beside a device, or on a disk.

namespace tessera::shard {

/// A tier of memory. device: the memory that the run computes in (without a GPU: host memory). host: pinned host memory
/// beside a device.
enum class Tier : unsigned char { device, host, disk };

/// What fetch and store move. Of a unit:
///   params     what its gathers read: this rank's shard in ScheduledUnit::param_dtype, or as stored if it is frozen
///   grads      its gradient accumulators
///   optimizer  what only its update uses: fp32 master weights and the states of the optimizer
/// Of a module, in a micro-batch (offloaded activations):
///   input      the activation that it reads
///   saved      what its forward leaves for its backward
enum class StateKind : unsigned char { params, grads, optimizer, input, saved };
inline constexpr int num_state_kinds = 5;
[[nodiscard]] const char* name_of(StateKind kind);
[[nodiscard]] constexpr bool is_activation(StateKind kind) {
  return kind == StateKind::input || kind == StateKind::saved;
}

/// The tier of each kind of a unit's states between its uses.
struct StatePlacement {
  Tier params = Tier::device, grads = Tier::device, optimizer = Tier::device;
  friend bool operator==(const StatePlacement&, const StatePlacement&) = default;
};

}  // namespace tessera::shard
