#pragma once
// Mesh: rank ↔ coordinates on named axes. Pure; nothing but a Mesh holds a world size.

#include <string>
#include <vector>

namespace tessera {

/// Named axes of the mesh.
enum class Axis : unsigned char { replicate, shard };
[[nodiscard]] const char* name_of(Axis axis);

/// An ordered grid of ranks, the last axis fastest: rank = replicate·S + shard. Value type. HYBRID_SHARD is {replicate
/// = nodes, shard = ranks per node}; FULL_SHARD {1, world}; NO_SHARD {world, 1}.
class Mesh {
 public:
  /// Both at least 1; throws Error (usage) otherwise.
  Mesh(int replicate, int shard);

  [[nodiscard]] int world() const;
  [[nodiscard]] int size(Axis axis) const;
  /// Coordinate of `rank` along `axis`, in [0, size(axis)).
  [[nodiscard]] int coordinate(int rank, Axis axis) const;
  /// World ranks of the group of `rank` along `axis`, in order of their coordinates.
  [[nodiscard]] std::vector<int> members(int rank, Axis axis) const;
  /// "{replicate 2, shard 4}"
  [[nodiscard]] std::string str() const;
  friend bool operator==(const Mesh&, const Mesh&) = default;

 private:
  struct AxisSize {
    Axis axis;
    int size;
    friend bool operator==(const AxisSize&, const AxisSize&) = default;
  };
  std::vector<AxisSize> axes_;
};

}  // namespace tessera
