// SPDX-License-Identifier: Apache-2.0
#pragma once
// Mesh: rank ↔ coordinates on named axes. Pure; nothing but a Mesh holds a world size.

#include <string>
#include <vector>

namespace tessera {

/// Names of axes. The data axes are replicate and shard: their ranks have different micro-batches.
enum class Axis : unsigned char { replicate, shard, expert, tensor, context, pipeline };
inline constexpr int num_axes = 6;
[[nodiscard]] const char* name_of(Axis axis);

/// A set of axes: of a group of ranks, those along which its members differ. An Axis converts to the set of it alone;
/// `Axis::replicate | Axis::shard` is the set of both. Value type.
class AxisSet {
 public:
  constexpr AxisSet() = default;
  constexpr AxisSet(Axis axis) : bits_(1U << static_cast<unsigned>(axis)) {}

  [[nodiscard]] constexpr bool contains(Axis axis) const { return (bits_ & AxisSet(axis).bits_) != 0; }
  [[nodiscard]] constexpr bool empty() const { return bits_ == 0; }
  /// "shard"; of several, in the order of Axis: "{replicate, shard}"; of none: "{}".
  [[nodiscard]] std::string str() const;
  friend constexpr bool operator==(const AxisSet&, const AxisSet&) = default;
  [[nodiscard]] friend constexpr AxisSet operator|(AxisSet a, AxisSet b) {
    a.bits_ |= b.bits_;
    return a;
  }

 private:
  unsigned bits_ = 0;
};
[[nodiscard]] constexpr AxisSet operator|(Axis a, Axis b) { return AxisSet(a) | AxisSet(b); }

struct AxisSize {
  Axis axis = Axis::shard;
  int size = 1;
  friend bool operator==(const AxisSize&, const AxisSize&) = default;
};

/// An ordered grid of ranks, the last axis fastest: rank = replicate·S + shard. Value type. HYBRID_SHARD is {replicate
/// = nodes, shard = ranks per node}; FULL_SHARD {1, world}; NO_SHARD {world, 1}. An axis that the mesh does not have
/// has one rank.
class Mesh {
 public:
  /// Slowest axis first. Throws Error (usage) if an axis is named twice or is empty, or if the ranks are more than an
  /// int counts.
  explicit Mesh(std::vector<AxisSize> axes);
  /// {replicate, shard}
  Mesh(int replicate, int shard) : Mesh({{Axis::replicate, replicate}, {Axis::shard, shard}}) {}

  [[nodiscard]] int world() const { return world_; }
  /// All axes of the mesh. The group along them is the world.
  [[nodiscard]] AxisSet axes() const;
  /// The axes along which ranks have different micro-batches, replicate and shard: the samples of a rank, the batch
  /// equation and the sum of losses depend on its place along these alone.
  [[nodiscard]] static constexpr AxisSet data_axes() { return Axis::replicate | Axis::shard; }

  /// Those of `axes` that have more than one rank.
  [[nodiscard]] AxisSet used(AxisSet axes) const;

  // Groups: ranks that differ along `axes` alone. Each rank is in one group along given axes.
  /// Ranks of a group: the product of the sizes of its axes. 1 for no axes.
  [[nodiscard]] int size(AxisSet axes) const;
  /// Number of `rank` in its group, in [0, size(axes)): its coordinates along `axes` in the order of the mesh, the last
  /// fastest.
  [[nodiscard]] int coordinate(int rank, AxisSet axes) const;
  /// World ranks of the group of `rank`, by their coordinate; ascending.
  [[nodiscard]] std::vector<int> members(int rank, AxisSet axes) const;

  /// "{replicate 2, shard 4}"
  [[nodiscard]] std::string str() const;
  friend bool operator==(const Mesh&, const Mesh&) = default;

 private:
  std::vector<AxisSize> axes_;
  int world_ = 1;
};

}  // namespace tessera
