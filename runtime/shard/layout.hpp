// SPDX-License-Identifier: Apache-2.0
#pragma once
// ShardLayout: the pure map between (unit, rank), intervals of flat buffers, and segments of parameters. Only it
// computes offsets.
//
// A unit is one flat buffer: its parameters one after another, each aligned to param_alignment elements, padded at the
// end, and split into S equal shards (S: size of the unit's shard group). The first parameter of a module is aligned to
// kernels::norm_block, so that the blocks in which the gradient norm is summed do not depend on which modules share a
// unit. The padding makes a shard a multiple of quantum elements, and of a trainable unit, whose shards are summed over
// R replicas, of R·quantum. So all strategies of one world pad trainable units alike. Alignment and quantum are at
// least the granularity of the optimizer's states, so that no block of them crosses a shard. Offsets are in elements:
// master weights, gathered parameters and gradients of a unit have the same layout, whatever their types.

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "runtime/base/param.hpp"
#include "runtime/comm/mesh.hpp"
#include "runtime/shard/policy.hpp"

namespace tessera::shard {

/// Parameters that are gathered and reduced together, as indices into the model's list of ParamSpec. Each parameter is
/// in one unit. All parameters of a unit are trainable, or none is.
struct UnitSpec {
  std::string name;
  std::vector<int> params;
  bool trainable = true;                // false: frozen, without gradients and optimizer states
  bool adapters = false;                // of LoRA (ParamSpec::adapter)
  bool split = false;                   // the parameters have parts on the ranks of the tensor axis (TensorPlacement)
  DType storage_dtype = DType::f32;     // of the shards; fp32 if trainable: they are the master weights
  UnitPolicy policy = {};               // its axes are those of the mesh that the layout is made for
  std::int64_t granularity = 1;         // of the optimizer's states (runtime/base/param.hpp); a power of two
  std::vector<int> module_firsts = {};  // the first of each module's parameters, in the order of `params`
};

/// Part of one parameter inside a unit's flat buffer. Offsets and lengths in elements.
struct Segment {
  int param = 0;                  // index into the model's list
  std::int64_t param_offset = 0;  // first element, within what a rank has of the parameter
  std::int64_t unit_offset = 0;   // the same within the unit's flat buffer
  std::int64_t length = 0;
  friend bool operator==(const Segment&, const Segment&) = default;
};

class ShardLayout {
 public:
  static constexpr std::int64_t param_alignment = 64;  // elements: 256 bytes of fp32
  /// Shard boundaries are multiples of so many elements: 512 bytes of the smallest dtype of the unit's buffers, and
  /// whole blocks of its states.
  [[nodiscard]] static std::int64_t quantum(const UnitSpec& unit);

  ShardLayout() = default;
  /// Throws std::logic_error if a parameter is in no unit or in two, or if a unit has both trainable and
  /// frozen parameters, or both replicated and split ones (TensorPlacement). A unit of split ones is over the data
  /// axes, where there is a tensor axis; one of replicated ones over the tensor axis too.
  ShardLayout(std::span<const ParamSpec> params, std::span<const UnitSpec> units, const Mesh& mesh);

  [[nodiscard]] int num_units() const { return static_cast<int>(units_.size()); }
  [[nodiscard]] const std::string& unit_name(int unit) const { return units_[static_cast<std::size_t>(unit)].name; }
  [[nodiscard]] bool trainable(int unit) const { return units_[static_cast<std::size_t>(unit)].trainable; }
  [[nodiscard]] const UnitPolicy& policy(int unit) const { return units_[static_cast<std::size_t>(unit)].policy; }
  [[nodiscard]] DType storage_dtype(int unit) const { return units_[static_cast<std::size_t>(unit)].storage_dtype; }
  /// Elements of the flat buffer, padding included.
  [[nodiscard]] std::int64_t padded_numel(int unit) const { return padded_[static_cast<std::size_t>(unit)]; }
  /// Elements of one shard: padded_numel / S.
  [[nodiscard]] std::int64_t shard_numel(int unit) const { return padded_numel(unit) / num_shards(unit); }
  /// Elements without padding.
  [[nodiscard]] std::int64_t numel(int unit) const { return numel_[static_cast<std::size_t>(unit)]; }
  [[nodiscard]] int num_shards(int unit) const { return mesh_.size(policy(unit).shard_axes); }
  [[nodiscard]] int num_replicas(int unit) const { return mesh_.size(policy(unit).replicate_axes); }
  /// The shard of the unit that `rank` holds, and its number among the ranks that hold the same shard.
  [[nodiscard]] int shard_of(int unit, int rank) const { return mesh_.coordinate(rank, policy(unit).shard_axes); }
  [[nodiscard]] int replica_of(int unit, int rank) const { return mesh_.coordinate(rank, policy(unit).replicate_axes); }

  /// Which part of the unit's parameters `rank` has; 0 if they are replicated.
  [[nodiscard]] int part_of(int unit, int rank) const;

  /// The unit that has the parameter, and the parameter's first element in that unit's flat buffer.
  [[nodiscard]] int unit_of(int param) const { return of_param_[static_cast<std::size_t>(param)].unit; }
  [[nodiscard]] std::int64_t offset_of(int param) const { return of_param_[static_cast<std::size_t>(param)].offset; }
  /// Segments of the parameters in shard `shard` of `unit`, in order; all_segments: in the whole unit.
  [[nodiscard]] std::vector<Segment> segments(int unit, int shard) const;
  [[nodiscard]] std::vector<Segment> all_segments(int unit) const;
  /// The segments of a shard of the part that a rank has of split parameters, with offsets within the whole parameters:
  /// more of them where a part is strided; without the padding of parts that are smaller than others.
  [[nodiscard]] std::vector<Segment> whole_segments(int unit, int shard, int part) const {
    return whole(segments(unit, shard), part);
  }
  [[nodiscard]] std::vector<Segment> whole(const std::vector<Segment>& segments, int part) const;
  /// Padding, between and after the parameters: (offset, length), in order.
  [[nodiscard]] std::vector<std::pair<std::int64_t, std::int64_t>> gaps(int unit) const;

 private:
  /// A parameter in a unit: how many elements, and where they are in the unit's flat buffer.
  struct Piece {
    int unit = -1, param = 0;
    std::int64_t length = 0, offset = 0;
  };
  void add_unit(std::span<const ParamSpec> params, int unit);
  /// The unit's parameters, without offsets.
  [[nodiscard]] std::vector<Piece> pieces_of(std::span<const ParamSpec> params, int unit) const;
  /// Sets the offsets, and returns the elements of the flat buffer.
  [[nodiscard]] std::int64_t place(int unit, std::vector<Piece>& pieces) const;
  /// Whether the unit is over the tensor axis too.
  [[nodiscard]] bool is_replicated(int unit) const {
    return (policy(unit).shard_axes | policy(unit).replicate_axes).contains(Axis::tensor);
  }
  [[nodiscard]] std::vector<Segment> segments_between(int unit, std::int64_t first, std::int64_t last) const;

  std::vector<UnitSpec> units_;
  std::vector<std::int64_t> padded_, numel_;
  std::vector<std::vector<Piece>> of_unit_;  // in the order of offsets
  std::vector<Piece> of_param_;
  std::vector<TensorPlacement> placements_;  // by parameter
  std::vector<Shape> shapes_;
  Mesh mesh_{1, 1};
};

}  // namespace tessera::shard
