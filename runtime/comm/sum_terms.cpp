#include "runtime/comm/sum_terms.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>

#include "kernels/convert.hpp"
#include "kernels/reduce.hpp"

namespace tessera::comm {

namespace {

constexpr std::size_t tile = 512;
constexpr std::size_t levels = 21;

TensorView view(const void* data, DType dtype, std::size_t count) {
  return {const_cast<void*>(data), dtype, Shape{static_cast<std::int64_t>(count)}};
}

/// The counter's digits: the sum of 2^level terms each.
using Digits = std::array<std::array<float, tile>, levels>;

void sum_block(std::span<const void* const> parts, DType dtype, std::size_t first, std::size_t count, Digits& digits, float* out) {
  std::array<float, tile> term;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    widen(Terms(parts[i], dtype).from(first), term.data(), count);
    std::size_t level = 0;
    for (std::size_t carry = i; (carry & 1) != 0; carry >>= 1) kernels::add_to(digits[level++].data(), term.data(), count, host_stream);
    std::memcpy(digits[level].data(), term.data(), count * sizeof(float));
  }
  auto rest = static_cast<std::uint32_t>(parts.size());
  if (rest == 0) return;
  std::memcpy(out, digits[static_cast<std::size_t>(std::countr_zero(rest))].data(), count * sizeof(float));
  for (rest &= rest - 1; rest != 0; rest &= rest - 1)  // what is left over, from the smallest subtree to the largest
    kernels::add_to(digits[static_cast<std::size_t>(std::countr_zero(rest))].data(), out, count, host_stream);
}

}  // namespace

void widen(Terms terms, float* out, std::size_t count) {
  if (count == 0 || terms.data == out) return;
  if (terms.dtype == DType::f32)
    std::memcpy(out, terms.data, count * sizeof(float));
  else
    kernels::convert_serial({.from = view(terms.data, terms.dtype, count), .to = view(out, DType::f32, count)}, host_stream);
}

void sum_terms(std::span<const void* const> parts, DType dtype, float* out, std::size_t count) {
  if (dtype == DType::f32) {
    kernels::sum_tree({.parts = {reinterpret_cast<const float* const*>(parts.data()), parts.size()}, .out = out, .count = count}, host_stream);
    return;
  }
  TESSERA_ASSERT(!parts.empty() && parts.size() < std::size_t{1} << levels, "%zu terms", parts.size());
  Digits digits;
  for (std::size_t first = 0; first < count; first += tile)
    sum_block(parts, dtype, first, std::min(tile, count - first), digits, out + first);
}

}  // namespace tessera::comm
