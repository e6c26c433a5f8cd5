// SPDX-License-Identifier: Apache-2.0
#include "runtime/base/tensor_placement.hpp"

#include <algorithm>

namespace tessera {

Shape TensorPlacement::whole(Shape part) const {
  if (!is_split()) return part;
  Shape shape;
  for (int i = 0; i < part.rank(); ++i) shape.push_back(part[i] * (i == dim ? ranks : 1));
  return shape;
}

std::vector<ElementRun> TensorPlacement::runs(const Shape& part, int rank, ElementRun elements) const {
  if (!is_split()) return {elements};
  TESSERA_ASSERT(rank >= 0 && rank < ranks && dim < part.rank(), "part %d of %d", rank, ranks);
  std::int64_t inner = 1;  // elements of one index of the dimension
  for (int i = dim + 1; i < part.rank(); ++i) inner *= part[i];
  const std::int64_t outer = part[dim] * inner, end = elements.first + elements.length;  // of the dimension, a part
  const std::vector<std::int64_t> sizes = sections.empty() ? std::vector{part[dim] * ranks} : sections;
  std::vector<ElementRun> runs;
  for (std::int64_t o = outer > 0 ? elements.first / outer : 0; o * outer < end; ++o) {
    std::int64_t local = o * outer, global = o * outer * ranks;
    for (const std::int64_t size : sizes) {
      const std::int64_t length = size / ranks * inner;
      const std::int64_t from = std::max(local, elements.first), to = std::min(local + length, end);
      const std::int64_t first = global + rank * length + from - local;
      local += length;
      global += length * ranks;
      if (from >= to) continue;
      if (!runs.empty() && runs.back().first + runs.back().length == first) runs.back().length += to - from;
      else runs.push_back({first, to - from});
    }
  }
  return runs;
}

}  // namespace tessera
