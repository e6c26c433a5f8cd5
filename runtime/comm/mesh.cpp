// Mesh: arithmetic of an ordered grid of named axes, the last axis fastest.
#include "runtime/comm/mesh.hpp"

#include "runtime/base/error.hpp"

namespace tessera {

const char* name_of(Axis axis) { return axis == Axis::replicate ? "replicate" : "shard"; }

Mesh::Mesh(int replicate, int shard) : extents_{{Axis::replicate, replicate}, {Axis::shard, shard}} {
  if (replicate < 1 || shard < 1)
    throw Error(ExitCode::usage, strfmt("mesh {replicate %d, shard %d} has an empty axis", replicate, shard), "mesh",
                "Both axes need at least one rank");
}

int Mesh::world() const {
  int product = 1;
  for (const auto& extent : extents_) product *= extent.size;
  return product;
}

int Mesh::size(Axis axis) const {
  for (const auto& extent : extents_)
    if (extent.axis == axis) return extent.size;
  return 1;
}

int Mesh::coordinate(int rank, Axis axis) const {
  TESSERA_ASSERT(rank >= 0 && rank < world(), "rank %d of %d", rank, world());
  for (auto extent = extents_.rbegin(); extent != extents_.rend(); ++extent) {
    if (extent->axis == axis) return rank % extent->size;
    rank /= extent->size;
  }
  return 0;
}

std::vector<int> Mesh::members(int rank, Axis axis) const {
  int stride = 1;
  for (auto extent = extents_.rbegin(); extent != extents_.rend() && extent->axis != axis; ++extent)
    stride *= extent->size;
  const int first = rank - coordinate(rank, axis) * stride;
  std::vector<int> ranks(static_cast<std::size_t>(size(axis)));
  for (std::size_t i = 0; i < ranks.size(); ++i) ranks[i] = first + static_cast<int>(i) * stride;
  return ranks;
}

std::string Mesh::str() const {
  std::string text = "{";
  for (const auto& extent : extents_)
    text += strfmt("%s%s %d", text.size() > 1 ? ", " : "", name_of(extent.axis), extent.size);
  return text + "}";
}

}  // namespace tessera
