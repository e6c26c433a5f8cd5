// SPDX-License-Identifier: Apache-2.0
#pragma once
// The tensors of a training state: which file holds each of them, and which bytes of them a rank holds. No I/O.

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "io/checkpoint/manifest.hpp"
#include "runtime/base/device.hpp"
#include "runtime/base/param.hpp"
#include "runtime/shard/layout.hpp"

namespace tessera::io {

/// A vector of the training state: the parameters, or one of the optimizer's states.
inline constexpr const char* model_group = "/model/";
/// "/optimizer/exp_avg/".
[[nodiscard]] std::string group_of(const StateSpec& state);
/// Names of the optimizer states that the files have, in the files' order.
[[nodiscard]] std::vector<std::string> state_names(const std::vector<StateFile>& files);

/// This rank's shard of a unit: its parameters (shard_numel(unit) elements), then its optimizer states in the order of
/// the specs (StateSpec::count(shard_numel(unit)) values each); a unit of frozen parameters has none.
struct StateView {
  int unit = 0, shard = 0;
  std::vector<TensorView> data;
  int part = 0;  // of split parameters, which one (ShardLayout::part_of)
};

/// What a rank holds of a training state.
struct TrainingState {
  std::vector<StateSpec> states;  // of the optimizer; none: the model alone, whatever else the shards have
  std::vector<StateView> shards;
};

/// What vector `index` of StateView::data holds: the parameters, in the type they are stored in, or a state.
[[nodiscard]] StateSpec values_of(const TrainingState& state, const StateView& view, std::size_t index);

/// Which parameters a checkpoint holds: all, or what is trained.
enum class SavedParams : unsigned char { all, trainable };

/// The data sets of each file: all of /model, each of the type ParamSpec::storage_dtype, then the optimizer states of
/// what is trained one after another, each in canonical order of parameters, in files of at most `file_bytes` (a larger
/// tensor has its own file). A state with a value for each element has the parameter's shape, one with blocks is a
/// vector of the blocks' values. Depends on the arguments alone. Throws Error (data): a parameter's name that cannot be
/// a data set's.
[[nodiscard]] std::vector<StateFile> plan_state_files(std::span<const ParamSpec> params,
                                                      std::span<const StateSpec> states, std::uint64_t file_bytes,
                                                      SavedParams saved = SavedParams::all);
/// Bytes of these data sets.
[[nodiscard]] std::uint64_t state_bytes(std::span<const ParamSpec> params, std::span<const StateSpec> states,
                                        SavedParams saved = SavedParams::all);
/// Names of the parameters that are not trained, in canonical order.
[[nodiscard]] std::vector<std::string> frozen_names(std::span<const ParamSpec> params);

/// A byte range of a file, and the memory that holds it.
struct StateRange {
  int file = 0;
  std::uint64_t offset = 0, bytes = 0;  // in the file
  std::byte* memory = nullptr;
  int unit = 0;
  Device device;
  DType stored = DType::f32, held = DType::f32;  // types in the file and in memory; a load converts, a save does not
};
/// What files lack because of frozen parameters.
struct FrozenInFiles {
  std::span<const std::string> names;  // parameters that have no optimizer states in the files
  bool left_out = false;               // nor values: /model lacks them too
};
/// The ranges of these shards, in order of (file, offset); with `saver`, its world rank, only the share of the replica
/// that it is (shard::replica_segments). There is none for what the files lack because of `frozen`. Throws Error (data)
/// listing data sets that are missing, unexpected, or of another shape or type; parameters may be of any float type of
/// up to 32 bits.
[[nodiscard]] std::vector<StateRange> state_ranges(std::span<const ParamSpec> params, const shard::ShardLayout& layout,
                                                   const TrainingState& state, const std::vector<StateFile>& files,
                                                   const FrozenInFiles& frozen, std::optional<int> saver);

}  // namespace tessera::io
