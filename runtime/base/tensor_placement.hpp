// SPDX-License-Identifier: Apache-2.0
#pragma once
// TensorPlacement: which part of a parameter each rank of the tensor axis has. Pure.

#include <cstdint>
#include <vector>

#include "runtime/base/tensor.hpp"

namespace tessera {

/// Consecutive elements. A negative first one: of padding, in no parameter.
struct ElementRun {
  std::int64_t first = 0, length = 0;
  friend bool operator==(const ElementRun&, const ElementRun&) = default;
};

/// The part of `size` indices that each of so many ranks has, in rank order: the first size mod ranks of them have one
/// more than the others.
[[nodiscard]] ElementRun even_part(std::int64_t size, int ranks, int rank);

/// One dimension is divided into `ranks` equal parts, in rank order. With sections, each of these consecutive ranges of
/// the dimension is (q, k and v of a fused matrix), and a rank's parts of them follow one another. Value type.
struct TensorPlacement {
  int ranks = 1;  // 1: replicated, every rank has all of it
  int dim = 0;
  std::vector<std::int64_t> sections = {};  // sizes, of all ranks together; empty: one, the dimension
  /// Of the dimension, of all ranks together, if `ranks` does not divide it: its parts are those of even_part, and the
  /// smaller ones have an index of padding behind. 0: the parts are equal.
  std::int64_t size = 0;

  [[nodiscard]] bool is_split() const { return ranks > 1; }
  /// The shape of the whole parameter, from that of a part.
  [[nodiscard]] Shape whole(Shape part) const;
  /// Elements [first, first + length) of the part that `rank` has, of this shape: where they are in the whole
  /// parameter, in the part's order, padding included.
  [[nodiscard]] std::vector<ElementRun> runs(const Shape& part, int rank, ElementRun elements) const;
  friend bool operator==(const TensorPlacement&, const TensorPlacement&) = default;
};

}  // namespace tessera
