// SPDX-License-Identifier: Apache-2.0
// Elements are read as doubles, in which i64 beyond 2^53 loses its last bits; tensors of equal type are compared by
// bits.
#include "io/inspect/tensor_stats.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>

namespace tessera::io {

namespace {

constexpr std::int64_t values_per_read = 32768;

template <class T>
void widen(const std::byte* from, std::int64_t count, double* out) {
  for (std::int64_t i = 0; i < count; ++i) {
    T value;
    std::memcpy(&value, from + i * static_cast<std::int64_t>(sizeof(T)), sizeof(T));
    out[i] = static_cast<double>(value);
  }
}

void to_double(const std::byte* from, DType dtype, std::int64_t count, double* out) {
  switch (dtype) {
    case DType::f32: return widen<float>(from, count, out);
    case DType::f64: return widen<double>(from, count, out);
    case DType::bf16: return widen<bf16>(from, count, out);
    case DType::f16: return widen<f16>(from, count, out);
    case DType::i32: return widen<std::int32_t>(from, count, out);
    case DType::i64: return widen<std::int64_t>(from, count, out);
    case DType::u8: return widen<std::uint8_t>(from, count, out);
  }
}

/// Ranges of one tensor, as bytes and as numbers.
class Elements {
 public:
  Elements(const TensorEntry& tensor, BlockCache& cache)
      : tensor_(tensor),
        cache_(cache),
        bytes_(values_per_read * size_of(tensor.dtype)),
        values_(static_cast<std::size_t>(values_per_read)) {}
  void read(std::int64_t first, std::int64_t count) {
    const std::size_t width = size_of(tensor_.dtype);
    cache_.read(tensor_.file, tensor_.offset + static_cast<std::uint64_t>(first) * width,
                std::span(bytes_).first(static_cast<std::size_t>(count) * width));
  }
  [[nodiscard]] std::span<const std::byte> bytes(std::int64_t count) const {
    return std::span(bytes_).first(static_cast<std::size_t>(count) * size_of(tensor_.dtype));
  }
  const double* values(std::int64_t count) {
    to_double(bytes_.data(), tensor_.dtype, count, values_.data());
    return values_.data();
  }

 private:
  const TensorEntry& tensor_;
  BlockCache& cache_;
  std::vector<std::byte> bytes_;
  std::vector<double> values_;
};

void add(TensorStats& stats, const double* values, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) {
    const double v = values[i];
    if (std::isnan(v)) ++stats.nans;
    else if (std::isinf(v)) ++stats.infinities;
    else {
      const bool first = stats.finite() == 0;
      stats.min = first ? v : std::min(stats.min, v);
      stats.max = first ? v : std::max(stats.max, v);
      stats.sum += v;
    }
    ++stats.count;
  }
}

void add(TensorDifference& difference, double a, double b) {
  ++difference.elements;
  if (!std::isfinite(a) || !std::isfinite(b)) {
    ++difference.one_not_finite;
    return;
  }
  const double absolute = std::abs(a - b), scale = std::max(std::abs(a), std::abs(b));
  difference.max_absolute = std::max(difference.max_absolute, absolute);
  if (scale > 0) difference.max_relative = std::max(difference.max_relative, absolute / scale);
}

}  // namespace

void TensorStats::join(const TensorStats& other) {
  if (other.finite() > 0) {
    min = finite() > 0 ? std::min(min, other.min) : other.min;
    max = finite() > 0 ? std::max(max, other.max) : other.max;
  }
  sum += other.sum;
  count += other.count;
  nans += other.nans;
  infinities += other.infinities;
}

void TensorDifference::join(const TensorDifference& other) {
  elements += other.elements;
  one_not_finite += other.one_not_finite;
  max_absolute = std::max(max_absolute, other.max_absolute);
  max_relative = std::max(max_relative, other.max_relative);
}

bool is_numeric(const TensorEntry& tensor) { return tensor.known; }

TensorStats compute_stats(const TensorEntry& tensor, BlockCache& cache, std::int64_t first, std::int64_t count) {
  TensorStats stats;
  Elements elements(tensor, cache);
  for (std::int64_t done = 0; done < count;) {
    const std::int64_t n = std::min(values_per_read, count - done);
    elements.read(first + done, n);
    add(stats, elements.values(n), n);
    done += n;
  }
  return stats;
}

TensorDifference compare(const TensorEntry& a, BlockCache& cache_a, const TensorEntry& b, BlockCache& cache_b,
                         std::int64_t first, std::int64_t count) {
  TensorDifference difference;
  Elements left(a, cache_a), right(b, cache_b);
  for (std::int64_t done = 0; done < count;) {
    const std::int64_t n = std::min(values_per_read, count - done);
    left.read(first + done, n);
    right.read(first + done, n);
    done += n;
    const auto x = left.bytes(n), y = right.bytes(n);
    const bool same_type = a.dtype == b.dtype;
    if (same_type && std::memcmp(x.data(), y.data(), x.size()) == 0) continue;
    const double *u = left.values(n), *v = right.values(n);
    const std::size_t width = size_of(a.dtype);
    for (std::int64_t i = 0; i < n; ++i) {
      const std::size_t at = static_cast<std::size_t>(i) * width;
      const bool equal = same_type ? std::memcmp(x.data() + at, y.data() + at, width) == 0
                                   : u[i] == v[i] || (std::isnan(u[i]) && std::isnan(v[i]));
      if (!equal) add(difference, u[i], v[i]);
    }
  }
  return difference;
}

}  // namespace tessera::io
