#pragma once
// The tensors of a training state: which file holds each of them, and which bytes of them a rank holds. No I/O.

#include <cstdint>
#include <optional>
#include <span>
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

/// This rank's shard of a unit's state: shard_numel(unit) elements per kind; null: no moments.
struct StateView {
  int unit = 0, shard = 0;
  float* data[num_state_kinds] = {nullptr, nullptr, nullptr};
  Device device;  // of `data`
};

/// The data sets of each file: all of /model, then the moments, in canonical order of parameters, in files of at most
/// `file_bytes` (a larger tensor has its own file). Depends on shapes and file_bytes alone. Throws Error (data): a
/// parameter's name that cannot be a data set's.
[[nodiscard]] std::vector<StateFile> plan_state_files(std::span<const ParamSpec> params, bool optimizer,
                                                      std::uint64_t file_bytes);

/// A byte range of a file, and the memory that holds it.
struct StateRange {
  int file = 0;
  std::uint64_t offset = 0, bytes = 0;
  std::byte* memory = nullptr;
  int unit = 0;
  Device device;
};
/// The ranges of these shards, in order of (file, offset); with `saver`, its world rank, only the share
/// of the replica that it is (shard::replica_segments). Throws Error (data) listing data sets that are missing,
/// unexpected, or of another shape or type.
[[nodiscard]] std::vector<StateRange> state_ranges(std::span<const ParamSpec> params, const shard::ShardLayout& layout,
                                                   std::span<const StateView> shards,
                                                   const std::vector<StateFile>& files, std::optional<int> saver);

}  // namespace tessera::io
