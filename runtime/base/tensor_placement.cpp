// SPDX-License-Identifier: Apache-2.0
#include "runtime/base/tensor_placement.hpp"

#include <algorithm>

namespace tessera {

ElementRun even_part(std::int64_t size, int ranks, int rank) {
  const std::int64_t least = size / ranks, more = size % ranks;
  return {rank * least + std::min<std::int64_t>(rank, more), least + (rank < more ? 1 : 0)};
}

Shape TensorPlacement::whole(Shape part) const {
  if (!is_split()) return part;
  Shape shape;
  for (int i = 0; i < part.rank(); ++i) shape.push_back(i != dim ? part[i] : size > 0 ? size : part[i] * ranks);
  return shape;
}

std::vector<ElementRun> TensorPlacement::runs(const Shape& part, int rank, ElementRun elements) const {
  if (!is_split()) return {elements};
  TESSERA_ASSERT(rank >= 0 && rank < ranks && dim < part.rank(), "part %d of %d", rank, ranks);
  std::int64_t inner = 1;  // elements of one index of the dimension
  for (int i = dim + 1; i < part.rank(); ++i) inner *= part[i];
  const std::int64_t outer = part[dim] * inner, end = elements.first + elements.length;  // of the dimension, a part
  const std::int64_t whole_dim = whole(part)[dim];
  const std::vector<std::int64_t> sizes = sections.empty() ? std::vector{whole_dim} : sections;
  std::vector<ElementRun> runs;
  /// Those of `elements` among [local, local + length) of the part, which begin at `global` of the whole parameter.
  const auto add = [&](std::int64_t local, std::int64_t length, std::int64_t global) {
    const std::int64_t from = std::max(local, elements.first), to = std::min(local + length, end);
    if (from >= to) return;
    const std::int64_t first = global < 0 ? -1 : global + from - local;
    const bool joins =
        first >= 0 && !runs.empty() && runs.back().first >= 0 && runs.back().first + runs.back().length == first;
    if (joins) runs.back().length += to - from;
    else runs.push_back({first, to - from});
  };
  for (std::int64_t o = outer > 0 ? elements.first / outer : 0; o * outer < end; ++o) {
    std::int64_t local = o * outer, global = o * whole_dim * inner;
    for (const std::int64_t of_section : sizes) {
      const ElementRun own = even_part(of_section, ranks, rank);
      add(local, own.length * inner, global + own.first * inner);
      local += own.length * inner;
      global += of_section * inner;
    }
    add(local, (o + 1) * outer - local, -1);
  }
  return runs;
}

}  // namespace tessera
