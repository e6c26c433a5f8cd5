// SPDX-License-Identifier: Apache-2.0
// Mesh: arithmetic of an ordered grid of named axes, the last axis fastest.
#include "runtime/comm/mesh.hpp"

#include <limits>

#include "runtime/base/error.hpp"

namespace tessera {

const char* name_of(Axis axis) {
  static constexpr const char* names[num_axes] = {"replicate", "shard", "expert", "tensor", "context", "pipeline"};
  return names[static_cast<int>(axis)];
}

std::string AxisSet::str() const {
  std::string text;
  int count = 0;
  for (int a = 0; a < num_axes; ++a) {
    if (!contains(static_cast<Axis>(a))) continue;
    if (count++ > 0) text += ", ";
    text += name_of(static_cast<Axis>(a));
  }
  return count == 1 ? text : "{" + text + "}";
}

Mesh::Mesh(std::vector<AxisSize> axes) : axes_(std::move(axes)) {
  AxisSet seen;
  for (const auto& [axis, size] : axes_) {
    if (size < 1)
      throw Error(ExitCode::usage, "mesh " + str() + " has an empty axis", "mesh",
                  "Every axis needs at least one rank");
    if (seen.contains(axis))
      throw Error(ExitCode::usage, "mesh " + str() + " has the axis " + name_of(axis) + " twice", "mesh",
                  "Name each axis once");
    if (size > std::numeric_limits<int>::max() / world_)
      throw Error(ExitCode::usage, "mesh " + str() + " has too many ranks", "mesh", "Use smaller axes");
    seen = seen | axis;
    world_ *= size;
  }
}

AxisSet Mesh::axes() const {
  AxisSet all;
  for (const auto& entry : axes_) all = all | entry.axis;
  return all;
}

AxisSet Mesh::used(AxisSet axes) const {
  AxisSet out;
  for (const auto& entry : axes_)
    if (axes.contains(entry.axis) && entry.size > 1) out = out | entry.axis;
  return out;
}

int Mesh::size(AxisSet axes) const {
  int product = 1;
  for (const auto& entry : axes_)
    if (axes.contains(entry.axis)) product *= entry.size;
  return product;
}

int Mesh::coordinate(int rank, AxisSet axes) const {
  TESSERA_ASSERT(rank >= 0 && rank < world_, "rank %d of %d", rank, world_);
  int number = 0, step = 1;
  for (auto entry = axes_.rbegin(); entry != axes_.rend(); ++entry) {
    if (axes.contains(entry->axis)) {
      number += rank % entry->size * step;
      step *= entry->size;
    }
    rank /= entry->size;
  }
  return number;
}

std::vector<int> Mesh::members(int rank, AxisSet axes) const {
  TESSERA_ASSERT(rank >= 0 && rank < world_, "rank %d of %d", rank, world_);
  // Distances of the members from the first, from the fastest axis to the slowest.
  std::vector<int> ranks{0};
  ranks.reserve(static_cast<std::size_t>(size(axes)));
  int first = rank, stride = 1, rest = rank;
  for (auto entry = axes_.rbegin(); entry != axes_.rend(); ++entry) {
    if (axes.contains(entry->axis)) {
      first -= rest % entry->size * stride;
      const std::size_t inner = ranks.size();
      for (int k = 1; k < entry->size; ++k)
        for (std::size_t i = 0; i < inner; ++i) ranks.push_back(ranks[i] + k * stride);
    }
    rest /= entry->size;
    stride *= entry->size;
  }
  for (int& member : ranks) member += first;
  return ranks;
}

std::string Mesh::str() const {
  std::string text = "{";
  for (const auto& entry : axes_)
    text += strfmt("%s%s %d", text.size() > 1 ? ", " : "", name_of(entry.axis), entry.size);
  return text + "}";
}

}  // namespace tessera
