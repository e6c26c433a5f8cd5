// SPDX-License-Identifier: Apache-2.0
// MXFP4 (OCP Microscaling Formats 1.0: E2M1 codes, an E8M0 scale for 32 of them) and FP8 (E4M3 without infinities).
#include "io/model/coded_tensors.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <nlohmann/json.hpp>

namespace tessera::io {

namespace {

constexpr const char *blocks_ending = "_blocks", *scales_ending = "_scales", *fp8_scales_ending = "_scale_inv";
constexpr std::int64_t mx_group = 32, mx_bytes = mx_group / 2;  // codes of a scale

[[noreturn]] void refuse_coded(const StoredTensor& tensor, const std::string& what) {
  throw Error(ExitCode::data, tensor.file->path() + ": " + quote_name(tensor.entry->name) + " " + what, {},
              "Give the model in bf16");
}

constexpr std::array<float, 16> e2m1 = {0.0F,  0.5F,  1.0F,  1.5F,  2.0F,  3.0F,  4.0F,  6.0F,
                                        -0.0F, -0.5F, -1.0F, -1.5F, -2.0F, -3.0F, -4.0F, -6.0F};

/// 2^(code - 127); infinite: 255, which is NaN.
float e8m0(std::uint8_t code) { return std::ldexp(1.0F, int{code} - 127); }

/// The values of all codes of E4M3: a sign, 4 bits of exponent, 3 of mantissa; the largest is NaN.
const std::array<float, 256>& e4m3() {
  static const std::array<float, 256> values = [] {
    std::array<float, 256> made{};
    for (int code = 0; code < 256; ++code) {
      const int exponent = code >> 3 & 15, mantissa = code & 7;
      float value = exponent == 0 ? std::ldexp(static_cast<float>(mantissa), -9)
                                  : std::ldexp(static_cast<float>(8 + mantissa), exponent - 10);
      if ((code & 127) == 127) value = std::numeric_limits<float>::quiet_NaN();
      made[static_cast<std::size_t>(code)] = code < 128 ? value : -value;
    }
    return made;
  }();
  return values;
}

std::int64_t blocks_in(std::int64_t size, std::int64_t block) { return size / block + (size % block != 0 ? 1 : 0); }

bool has_type(const StoredTensor& tensor, const char* type) { return std::strcmp(tensor.entry->type, type) == 0; }

std::vector<std::uint8_t> codes_of(const StoredTensor& tensor, std::int64_t first, std::int64_t count) {
  std::vector<std::uint8_t> bytes(static_cast<std::size_t>(count));
  tensor.file->read_bytes(*tensor.entry, static_cast<std::uint64_t>(first), std::as_writable_bytes(std::span(bytes)));
  return bytes;
}

/// Scales [first, first + count): floats, or exponents in a byte each.
std::vector<float> coded_scales_of(const StoredTensor& tensor, std::int64_t first, std::int64_t count) {
  std::vector<float> scales(static_cast<std::size_t>(count));
  if (tensor.entry->known_dtype && is_float(tensor.entry->dtype))
    tensor.file->read(*tensor.entry, first, count, scales.data());
  else std::ranges::transform(codes_of(tensor, first, count), scales.begin(), e8m0);
  const auto bad = std::ranges::find_if(scales, [](float scale) { return !std::isfinite(scale); });
  if (bad != scales.end())
    refuse_coded(tensor, strfmt("has a scale that is no finite number (its %ld-th)", first + (bad - scales.begin())));
  return scales;
}

}  // namespace

/// A matrix is stored by columns: of column j the codes of all rows, 32 with a scale.
void CodedTensor::read_mxfp4(const Part& part) const {
  const std::int64_t columns = shape_.back(), rows = shape_[shape_.size() - 2], groups = rows / mx_group;
  const std::vector<std::uint8_t> codes =
      codes_of(codes_, part.matrix * columns * groups * mx_bytes, columns * groups * mx_bytes);
  const std::vector<float> scales = coded_scales_of(scales_, part.matrix * columns * groups, columns * groups);
  constexpr std::int64_t together = 16;  // columns: a cache line of the output
  for (std::int64_t begin = 0; begin < columns; begin += together)
    for (std::int64_t row = part.first / columns; row <= (part.last - 1) / columns; ++row)
      for (std::int64_t column = begin; column < std::min(columns, begin + together); ++column) {
        const std::int64_t at = row * columns + column;
        if (at < part.first || at >= part.last) continue;
        const std::uint8_t pair = codes[static_cast<std::size_t>(column * rows + row) / 2];
        part.to[at - part.first] = e2m1[row % 2 == 0 ? pair & 15 : pair >> 4] *
                                   scales[static_cast<std::size_t>(column * groups + row / mx_group)];
      }
}

void CodedTensor::read_fp8(const Part& part) const {
  const std::int64_t columns = shape_.back(), rows = shape_[shape_.size() - 2];
  const std::int64_t wide = blocks_in(columns, block_[1]), high = blocks_in(rows, block_[0]);
  const std::vector<float> scales = coded_scales_of(scales_, part.matrix * wide * high, wide * high);
  constexpr std::int64_t most = 1 << 20;
  for (std::int64_t first = part.first; first < part.last; first += most) {
    const std::int64_t last = std::min(part.last, first + most);
    const std::vector<std::uint8_t> codes = codes_of(codes_, part.matrix * rows * columns + first, last - first);
    for (std::int64_t at = first; at < last; ++at) {
      const std::int64_t block = at / columns / block_[0] * wide + at % columns / block_[1];
      part.to[at - part.first] =
          e4m3()[codes[static_cast<std::size_t>(at - first)]] * scales[static_cast<std::size_t>(block)];
    }
  }
}

void CodedTensor::read_elements(std::int64_t first, std::int64_t count, float* to) const {
  const std::int64_t matrix = shape_.back() * shape_[shape_.size() - 2];
  for (std::int64_t done = 0; done < count;) {
    const std::int64_t at = first + done, begin = at % matrix, end = std::min(matrix, begin + count - done);
    const Part part{.matrix = at / matrix, .first = begin, .last = end, .to = to + done};
    mxfp4_ ? read_mxfp4(part) : read_fp8(part);
    done += end - begin;
  }
}

CodedTensors::CodedTensors(const std::vector<StoredTensor>& tensors, std::array<std::int64_t, 2> block) {
  std::map<std::string, const StoredTensor*> by_name;
  for (const StoredTensor& tensor : tensors) by_name.emplace(tensor.entry->name, &tensor);
  const auto beside = [&](const StoredTensor& codes, const std::string& name) -> const StoredTensor& {
    const auto found = by_name.find(name);
    if (found == by_name.end()) refuse_coded(codes, "has no " + quote_name(name) + " beside it");
    return *found->second;
  };
  for (const StoredTensor& tensor : tensors) {
    const std::string& name = tensor.entry->name;
    if (name.ends_with(blocks_ending) && has_type(tensor, "U8")) {
      const std::string of = name.substr(0, name.size() - std::strlen(blocks_ending));
      add_mxfp4(of, tensor, beside(tensor, of + scales_ending));
    }
    if (block[0] > 0 && has_type(tensor, "F8_E4M3")) add_fp8(tensor, beside(tensor, name + fp8_scales_ending), block);
  }
}

void CodedTensors::add_mxfp4(const std::string& name, const StoredTensor& blocks, const StoredTensor& scales) {
  const std::vector<std::int64_t>& shape = blocks.entry->shape;
  if (shape.size() != 4 || shape[3] != mx_bytes)
    refuse_coded(blocks, "is not (experts, columns, groups, 16), as MXFP4 of gpt-oss is");
  if (!has_type(scales, "U8") || scales.entry->shape != std::vector(shape.begin(), shape.end() - 1))
    refuse_coded(scales, "has not one U8 for each block of " + quote_name(blocks.entry->name));
  CodedTensor& made = tensors_[blocks.entry->name];
  made.name_ = name;
  made.shape_ = {shape[0], shape[2] * mx_group, shape[1]};
  made.mxfp4_ = true;
  made.codes_ = blocks, made.scales_ = scales;
  scales_.emplace(scales.entry->name, name);
}

void CodedTensors::add_fp8(const StoredTensor& codes, const StoredTensor& scales, std::array<std::int64_t, 2> block) {
  const std::vector<std::int64_t>& shape = codes.entry->shape;
  if (shape.size() < 2) refuse_coded(codes, "is FP8, and no matrix");
  std::vector<std::int64_t> expected = shape;
  for (std::size_t d = 0; d < 2; ++d) {
    std::int64_t& size = expected[shape.size() - 2 + d];
    size = blocks_in(size, block[d]);
  }
  const bool is_readable = (scales.entry->known_dtype && is_float(scales.entry->dtype)) || has_type(scales, "U8") ||
                           has_type(scales, "F8_E8M0");
  if (!is_readable || scales.entry->shape != expected)
    refuse_coded(scales, strfmt("is not one scale for each block of %ld by %ld of ", block[0], block[1]) +
                             quote_name(codes.entry->name));
  CodedTensor& made = tensors_[codes.entry->name];
  made.name_ = codes.entry->name;
  made.shape_ = shape;
  made.codes_ = codes, made.scales_ = scales;
  made.block_ = block;
  scales_.emplace(scales.entry->name, codes.entry->name);
}

const CodedTensor* CodedTensors::find(const std::string& name) const {
  const auto found = tensors_.find(name);
  return found == tensors_.end() ? nullptr : &found->second;
}

std::array<std::int64_t, 2> fp8_block_of(const std::string& config_json) {
  const auto json = nlohmann::json::parse(config_json, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object() || !json.contains("quantization_config")) return {};
  const auto& of = json.at("quantization_config");
  if (!of.is_object() || !of.contains("weight_block_size")) return {};
  const auto& block = of.at("weight_block_size");  // models::quantization_of has checked it
  if (!block.is_array() || block.size() != 2 || !block[0].is_number_integer() || !block[1].is_number_integer())
    return {};
  return {std::max<std::int64_t>(0, block[0].get<std::int64_t>()),
          std::max<std::int64_t>(1, block[1].get<std::int64_t>())};
}

}  // namespace tessera::io
