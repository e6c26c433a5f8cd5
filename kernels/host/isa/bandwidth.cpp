// SPDX-License-Identifier: Apache-2.0
// Reading and copying by registers, as kernels do it: ordinary loads and stores, nothing else.
#include "kernels/host/bandwidth.hpp"

#include "kernels/host/isa/vec.hpp"

namespace tessera::kernels::host::TESSERA_ISA {
namespace {

constexpr int words_of_register = vec_bytes / 8;
typedef std::uint64_t WordVec __attribute__((vector_size(vec_bytes)));

inline WordVec load_words(const std::uint64_t* p) {
  WordVec v;
  __builtin_memcpy(&v, p, sizeof v);
  return v;
}

std::uint64_t read(const std::uint64_t* x, std::int64_t n) {
  constexpr int together = 4;
  WordVec any[together] = {};
  std::int64_t i = 0;
  for (; i + together * words_of_register <= n; i += together * words_of_register) {
#pragma GCC unroll 4
    for (int j = 0; j < together; ++j) any[j] |= load_words(x + i + j * words_of_register);
  }
  const WordVec all = (any[0] | any[1]) | (any[2] | any[3]);
  std::uint64_t result = 0;
  for (int j = 0; j < words_of_register; ++j) result |= all[j];
  for (; i < n; ++i) result |= x[i];
  return result;
}

void copy(const std::uint64_t* x, std::uint64_t* y, std::int64_t n) {
  std::int64_t i = 0;
  for (; i + words_of_register <= n; i += words_of_register) {
    const WordVec v = load_words(x + i);
    __builtin_memcpy(y + i, &v, sizeof v);
  }
  for (; i < n; ++i) y[i] = x[i];
}

}  // namespace

const Bandwidth bandwidth_table = {read, copy};

}  // namespace tessera::kernels::host::TESSERA_ISA
