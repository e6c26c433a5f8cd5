#pragma once
// State: the tensors of a training state, in which file each of them goes, and which bytes of them a rank holds. Pure.

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "io/checkpoint/manifest.hpp"
#include "runtime/base/device.hpp"
#include "runtime/base/param.hpp"
#include "runtime/shard/layout.hpp"

namespace tessera::io {

/// The vectors of a training state, each one value per parameter element.
enum class StateKind : unsigned char { model, exp_avg, exp_avg_sq };
inline constexpr int num_state_kinds = 3;
/// "/model/", "/optimizer/exp_avg/", "/optimizer/exp_avg_sq/".
[[nodiscard]] const char* group_of(StateKind kind);

/// This rank's piece of a unit's state: shard_numel(unit) elements each; moments null where there are none.
struct StateView {
  int unit = 0, shard = 0;
  float* data[num_state_kinds] = {nullptr, nullptr, nullptr};
  Device device;  // where they lie
};

/// The data sets of each file: all of /model, then the moments, in canonical order of parameters, cut into files of at
/// most `file_bytes` (a larger tensor has a file of its own). A function of shapes and file_bytes alone. Throws Error
/// (data): a parameter's name that cannot be a data set's.
[[nodiscard]] std::vector<StateFile> plan_state_files(std::span<const ParamSpec> params, bool optimizer,
                                                      std::uint64_t file_bytes);

/// A stretch of memory and its place in a file; both contiguous.
struct StateRange {
  int file = 0;
  std::uint64_t offset = 0, bytes = 0;
  std::byte* memory = nullptr;
  int unit = 0;
  Device device;
};
/// Of these shards, in order of (file, offset). `replica` of `replicas`: only its share of each
/// (shard::replica_segments). Throws Error (data) listing what `files` lack, or hold in another shape or type, and what
/// they hold beyond it in the groups of `optimizer`.
[[nodiscard]] std::vector<StateRange> state_ranges(std::span<const ParamSpec> params, const shard::ShardLayout& layout,
                                                   std::span<const StateView> shards,
                                                   const std::vector<StateFile>& files, int replica, int replicas);

}  // namespace tessera::io
