// Mesh: arithmetic of an ordered grid of named axes, the last axis fastest.
#include "runtime/comm/mesh.hpp"

#include "runtime/base/error.hpp"

namespace tessera {

const char* name_of(Axis axis) { return axis == Axis::replicate ? "replicate" : "shard"; }

Mesh::Mesh(int replicate, int shard) : axes_{{Axis::replicate, replicate}, {Axis::shard, shard}} {
  if (replicate < 1 || shard < 1)
    throw Error(ExitCode::usage, strfmt("mesh {replicate %d, shard %d} has an empty axis", replicate, shard), "mesh",
                "Both axes need at least one rank");
}

int Mesh::world() const {
  int product = 1;
  for (const auto& entry : axes_) product *= entry.size;
  return product;
}

int Mesh::size(Axis axis) const {
  for (const auto& entry : axes_)
    if (entry.axis == axis) return entry.size;
  return 1;
}

int Mesh::coordinate(int rank, Axis axis) const {
  TESSERA_ASSERT(rank >= 0 && rank < world(), "rank %d of %d", rank, world());
  for (auto entry = axes_.rbegin(); entry != axes_.rend(); ++entry) {
    if (entry->axis == axis) return rank % entry->size;
    rank /= entry->size;
  }
  return 0;
}

std::vector<int> Mesh::members(int rank, Axis axis) const {
  int stride = 1;
  for (auto entry = axes_.rbegin(); entry != axes_.rend() && entry->axis != axis; ++entry) stride *= entry->size;
  const int first = rank - coordinate(rank, axis) * stride;
  std::vector<int> ranks(static_cast<std::size_t>(size(axis)));
  for (std::size_t i = 0; i < ranks.size(); ++i) ranks[i] = first + static_cast<int>(i) * stride;
  return ranks;
}

std::string Mesh::str() const {
  std::string text = "{";
  for (const auto& entry : axes_)
    text += strfmt("%s%s %d", text.size() > 1 ? ", " : "", name_of(entry.axis), entry.size);
  return text + "}";
}

}  // namespace tessera
