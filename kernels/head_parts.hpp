// SPDX-License-Identifier: Apache-2.0
#pragma once
// Heads in the order in which ranks exchange them for attention (DeepSpeed Ulysses, Jacobs et al. 2023): a rank has all
// heads of 1/C of the tokens, and during attention some heads of all tokens.

#include <algorithm>
#include <cstdint>

#include "runtime/base/stream.hpp"
#include "runtime/base/tensor.hpp"

namespace tessera::kernels {

/// The heads of a token, columns q | k | v of a matrix, in C parts. A part has nh/C q heads and the kv heads that they
/// read: nk/C; or one, which C/nk parts have, where nk < C. kv_heads 0: columns q alone, as of attention's output.
struct HeadParts {
  std::int64_t parts = 1;                              // C
  std::int64_t heads = 0, kv_heads = 0, head_dim = 0;  // nh, which C divides; nk, of which C is a divisor or a multiple
  [[nodiscard]] std::int64_t part_heads() const { return heads / parts; }
  [[nodiscard]] std::int64_t part_kv_heads() const {
    return kv_heads == 0 ? 0 : std::max<std::int64_t>(1, kv_heads / parts);
  }
  /// Parts that have the same kv head.
  [[nodiscard]] std::int64_t copies() const { return kv_heads == 0 ? 1 : std::max<std::int64_t>(1, parts / kv_heads); }
  [[nodiscard]] std::int64_t width() const { return (heads + 2 * kv_heads) * head_dim; }
  [[nodiscard]] std::int64_t part_width() const { return (part_heads() + 2 * part_kv_heads()) * head_dim; }
};
/// Whether heads can be divided so: by those two rules.
[[nodiscard]] inline bool divides_heads(const HeadParts& of) {
  return of.heads % of.parts == 0 && (of.kv_heads == 0 || of.kv_heads % of.parts == 0 || of.parts % of.kv_heads == 0);
}

struct HeadPartsArgs {
  HeadParts of;
  TensorView rows;   // (N, width)
  TensorView parts;  // (C, N, part_width)
};
/// Writes `parts` from `rows`.
void split_heads(const HeadPartsArgs& args, StreamView stream);
/// Writes `rows` from `parts`, the transpose: a kv head that several parts have is their sum, in the order of the
/// parts, in fp32 (fp64 of fp64) and rounded once.
void merge_heads(const HeadPartsArgs& args, StreamView stream);

}  // namespace tessera::kernels
