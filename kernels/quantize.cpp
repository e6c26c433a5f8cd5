// SPDX-License-Identifier: Apache-2.0
#include "kernels/quantize.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "kernels/convert.hpp"
#include "kernels/dynamic_code.hpp"
#include "kernels/host/dequantize.hpp"
#include "kernels/quantized_codes.hpp"
#include "runtime/base/error.hpp"
#include "runtime/base/half.hpp"

namespace tessera::kernels {

namespace {

constexpr std::int64_t quantizer_piece = 1 << 18;  // elements in memory; a row of int8 may be longer

std::uint8_t nearest_dynamic(float x) {
  const auto& bounds = signed_dynamic_code.thresholds;
  return static_cast<std::uint8_t>(std::lower_bound(bounds, bounds + 255, x) - bounds);
}

}  // namespace

std::span<const float> four_bit_code(QuantFormat format) { return is_fp4(format) ? fp4_values : nf4_values; }
std::span<const float> absmax_code() { return signed_dynamic_code.values; }

Quantizer::Quantizer(const QuantizedMatrix& matrix, ReadElements read)
    : matrix_(matrix), read_(std::move(read)), absmax_(static_cast<std::size_t>(matrix.groups()), -1.0F) {
  TESSERA_ASSERT(matrix, "no format");
}

void Quantizer::set_mean(float mean) { mean_ = mean, has_mean_ = true; }

/// Elements [first, first + count), which are whole groups.
void Quantizer::load(std::int64_t first, std::int64_t count) {
  elements_.resize(static_cast<std::size_t>(count));
  read_(first, count, elements_.data());
  if (matrix_.format == QuantFormat::int8)
    for (float& x : elements_) x = static_cast<float>(f16(x));
}

void Quantizer::measure(std::int64_t first_group, std::int64_t end_group) {
  const std::int64_t group = matrix_.group(), most = std::max<std::int64_t>(1, quantizer_piece / group);
  for (std::int64_t g = first_group; g < end_group; g += most) {
    const std::int64_t end = std::min(end_group, g + most), first = g * group;
    load(first, std::min(end * group, matrix_.numel()) - first);
    for (std::int64_t i = g; i < end; ++i) {
      const std::int64_t at = i * group - first, n = std::min(group, static_cast<std::int64_t>(elements_.size()) - at);
      const float largest = host::quantize().absmax(elements_.data() + at, n);
      if (!(largest < HUGE_VALF))
        throw Error(ExitCode::data,
                    strfmt("elements %ld to %ld are not all finite%s and cannot be quantized to %s", i * group,
                           i * group + n - 1, matrix_.format == QuantFormat::int8 ? " numbers of fp16" : "",
                           name_of(matrix_.format)));
      absmax_[static_cast<std::size_t>(i)] = largest;
    }
  }
}

void Quantizer::make_statistics() {
  measure(0, matrix_.groups());
  statistics_.assign(static_cast<std::size_t>(matrix_.bytes() - matrix_.code_bytes()), std::byte{0});
  std::byte* const base = statistics_.data() - matrix_.code_bytes();
  std::byte* const scales = base + matrix_.scales_at();
  if (!is_nested(matrix_.format)) {
    std::memcpy(scales, absmax_.data(), absmax_.size() * sizeof(float));
    return;
  }
  if (!has_mean_) {
    double sum = 0;
    for (const float x : absmax_) sum += static_cast<double>(x);
    mean_ = static_cast<float>(sum / static_cast<double>(absmax_.size()));
  }
  std::memcpy(base + matrix_.offset_at(), &mean_, sizeof mean_);
  constexpr auto nested = static_cast<std::size_t>(QuantizedMatrix::nested_block);
  for (std::size_t begin = 0; begin < absmax_.size(); begin += nested) {
    const std::size_t end = std::min(absmax_.size(), begin + nested);
    float largest = 0;
    for (std::size_t i = begin; i < end; ++i) largest = std::max(largest, std::abs(absmax_[i] - mean_));
    const float scale = 1.0F / std::max(largest, 1e-38F);
    for (std::size_t i = begin; i < end; ++i)
      base[matrix_.absmax_at() + static_cast<std::int64_t>(i)] =
          std::byte{nearest_dynamic(std::clamp((absmax_[i] - mean_) * scale, -1.0F, 1.0F))};
    std::memcpy(scales + begin / nested * sizeof(float), &largest, sizeof largest);
  }
}

/// Codes of elements [first, first + count), which are whole groups, or end with the matrix.
void Quantizer::code_elements(std::int64_t first, std::int64_t count, std::byte* to) {
  const std::int64_t group = matrix_.group();
  for (std::int64_t at = 0; at < count; at += group) {
    const std::int64_t n = std::min(group, count - at);
    const float absmax = absmax_[static_cast<std::size_t>((first + at) / group)];
    const float* const x = elements_.data() + at;
    if (is_4bit(matrix_.format))
      (is_fp4(matrix_.format) ? host::quantize().fp4 : host::quantize().nf4)(
          x, absmax, reinterpret_cast<std::uint8_t*>(to) + at / 2, n);
    else host::quantize().int8(x, absmax, reinterpret_cast<std::int8_t*>(to) + at, n);
  }
}

void Quantizer::read(std::int64_t first, std::span<std::byte> to) {
  const std::int64_t end = first + static_cast<std::int64_t>(to.size()), codes = matrix_.code_bytes();
  TESSERA_ASSERT(first >= 0 && end <= matrix_.bytes(), "bytes %ld to %ld of %ld", first, end, matrix_.bytes());
  if (end > codes) {
    if (statistics_.empty()) make_statistics();
    const std::int64_t begin = std::max(first, codes);
    std::memcpy(to.data() + (begin - first), statistics_.data() + (begin - codes),
                static_cast<std::size_t>(end - begin));
  }
  const std::int64_t per_byte = is_4bit(matrix_.format) ? 2 : 1, group = matrix_.group(),
                     group_bytes = group / per_byte, most = std::max<std::int64_t>(1, quantizer_piece / group);
  const std::int64_t first_group = first / group_bytes, end_byte = std::min(end, codes);
  const std::int64_t end_group = first < end_byte ? (end_byte + group_bytes - 1) / group_bytes : first_group;
  std::vector<std::byte> made;
  for (std::int64_t g = first_group; g < end_group; g += most) {
    const std::int64_t last = std::min(end_group, g + most);
    measure(g, last);  // leaves the elements
    const auto count = static_cast<std::int64_t>(elements_.size());
    made.resize(static_cast<std::size_t>((count + per_byte - 1) / per_byte));
    code_elements(g * group, count, made.data());
    const std::int64_t at = g * group_bytes, begin = std::max(first, at),
                       stop = std::min(end_byte, at + static_cast<std::int64_t>(made.size()));
    std::memcpy(to.data() + (begin - first), made.data() + (begin - at), static_cast<std::size_t>(stop - begin));
  }
}

}  // namespace tessera::kernels
