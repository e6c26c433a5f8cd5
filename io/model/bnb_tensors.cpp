// SPDX-License-Identifier: Apache-2.0
#include "io/model/bnb_tensors.hpp"

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>

#include "kernels/dequantize.hpp"
#include "kernels/quantize.hpp"

namespace tessera::io {

namespace {

constexpr const char* nf4_state = ".quant_state.bitsandbytes__nf4";
constexpr const char* fp4_state = ".quant_state.bitsandbytes__fp4";
constexpr const char* weight_ending = ".weight";

[[noreturn]] void refuse_quantized(const StoredTensor& tensor, const std::string& name, const std::string& what) {
  throw Error(ExitCode::data, tensor.file->path() + ": " + quote_name(name) + " " + what, {},
              "Give the model in bf16, and quantize it here with --quant_method bnb --quant_bits 4");
}

std::vector<float> floats_in(const StoredTensor& tensor) {
  std::vector<float> values(static_cast<std::size_t>(tensor.entry->numel()));
  tensor.file->read(*tensor.entry, 0, tensor.entry->numel(), values.data());
  return values;
}

/// QuantState's JSON.
nlohmann::json quant_state(const StoredTensor& tensor) {
  std::string text(static_cast<std::size_t>(tensor.entry->end - tensor.entry->begin), '\0');
  tensor.file->read_bytes(*tensor.entry, 0, std::as_writable_bytes(std::span(text)));
  return nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
}

}  // namespace

BnbTensors::BnbTensors(const std::vector<StoredTensor>& tensors) {
  for (const StoredTensor& tensor : tensors) tensors_.emplace(tensor.entry->name, tensor);
  for (const StoredTensor& tensor : tensors) {
    const std::string& name = tensor.entry->name;
    const bool fp4 = name.ends_with(fp4_state);
    if (fp4 || name.ends_with(nf4_state)) {
      const std::string of = name.substr(0, name.size() - std::strlen(nf4_state));
      part_of_.emplace(name, of);
      const auto codes = tensors_.find(of);
      if (codes == tensors_.end()) refuse_quantized(tensor, name, "has no " + of + " beside it");
      add_4bit(of, fp4, codes->second, tensor);
    }
    if (name.ends_with(weight_ending) && std::strcmp(tensor.entry->type, "I8") == 0)
      if (const auto scales = tensors_.find(name.substr(0, name.size() - std::strlen(weight_ending)) + ".SCB");
          scales != tensors_.end())
        add_int8(name, tensor, scales->second);
  }
}

const StoredTensor& BnbTensors::part(const std::string& name, const std::string& of, const char* type,
                                     std::int64_t numel) {
  const auto found = tensors_.find(name);
  const StoredTensor& matrix = tensors_.at(of);
  if (found == tensors_.end()) refuse_quantized(matrix, of, "is quantized, and has no " + quote_name(name));
  const SafetensorsEntry& entry = *found->second.entry;
  if (std::strcmp(entry.type, type) != 0 || entry.numel() != numel)
    refuse_quantized(found->second, name,
                     strfmt("is %s of %ld elements, not %s of %ld", entry.type, entry.numel(), type, numel));
  part_of_.emplace(name, of);
  return found->second;
}

void BnbTensors::add_4bit(const std::string& name, bool fp4, const StoredTensor& codes, const StoredTensor& state) {
  const nlohmann::json json = quant_state(state);
  const auto number = [&](const char* key) {
    return json.is_object() && json.contains(key) && json.at(key).is_number() ? json.at(key).get<double>() : -1.0;
  };
  if (number("blocksize") != static_cast<double>(QuantizedMatrix::block))
    refuse_quantized(codes, name, strfmt("has blocks of %g elements, and only 64 is supported", number("blocksize")));
  const bool nested = json.contains("nested_offset");
  if (nested && number("nested_blocksize") != static_cast<double>(QuantizedMatrix::nested_block))
    refuse_quantized(codes, name, "has nested blocks of another size than 256");
  if (nested && !json.at("nested_offset").is_number())
    refuse_quantized(codes, name, "has a nested_offset that is no number");
  const auto& shape = json.contains("shape") ? json.at("shape") : nlohmann::json();
  if (!shape.is_array() || shape.size() != 2 || !shape[0].is_number_integer() || !shape[1].is_number_integer() ||
      shape[0].get<std::int64_t>() < 1 || shape[1].get<std::int64_t>() < 1)
    refuse_quantized(codes, name, "is no matrix");
  BnbMatrix found;
  const QuantizedMatrix matrix =
      found.matrix_ = {four_bit_format(fp4, nested), shape[0].get<std::int64_t>(), shape[1].get<std::int64_t>()};
  found.shape_ = {matrix.rows, matrix.columns};
  found.mean_ = nested ? static_cast<float>(number("nested_offset")) : 0.0F;
  found.parts_ = {{0, codes}};
  if (std::strcmp(codes.entry->type, "U8") != 0 || codes.entry->numel() != matrix.code_bytes())
    refuse_quantized(
        codes, name,
        strfmt("is %s of %ld elements, not U8 of %ld", codes.entry->type, codes.entry->numel(), matrix.code_bytes()));
  if (!std::ranges::equal(floats_in(part(name + ".quant_map", name, "F32", 16)), kernels::four_bit_code(matrix.format)))
    refuse_quantized(codes, name, std::string("has another code than ") + (fp4 ? "fp4" : "nf4"));
  if (nested) add_nested(name, codes, found);
  else found.parts_.push_back({matrix.scales_at(), part(name + ".absmax", name, "F32", matrix.groups())});
  matrices_.emplace(name, std::move(found));
}

void BnbTensors::add_nested(const std::string& name, const StoredTensor& codes, BnbMatrix& to) {
  const QuantizedMatrix& matrix = to.matrix_;
  to.parts_.push_back({matrix.absmax_at(), part(name + ".absmax", name, "U8", matrix.groups())});
  to.parts_.push_back({matrix.scales_at(), part(name + ".nested_absmax", name, "F32", matrix.nested_groups())});
  if (!std::ranges::equal(floats_in(part(name + ".nested_quant_map", name, "F32", 256)), kernels::absmax_code()))
    refuse_quantized(codes, name, "has another code of its absmax than bitsandbytes' dynamic one");
}

void BnbTensors::add_int8(const std::string& name, const StoredTensor& codes, const StoredTensor& scales) {
  if (codes.entry->shape.size() != 2) refuse_quantized(codes, name, "is no matrix");
  BnbMatrix found;
  found.matrix_ = {QuantFormat::int8, codes.entry->shape[0], codes.entry->shape[1]};
  found.shape_ = codes.entry->shape;
  found.parts_ = {{0, codes}, {found.matrix_.scales_at(), part(scales.entry->name, name, "F32", found.matrix_.rows)}};
  const std::string format = name.substr(0, name.size() - std::strlen(weight_ending)) + ".weight_format";
  if (tensors_.contains(format)) {
    std::byte row{};
    const StoredTensor& tensor = part(format, name, "U8", 1);
    tensor.file->read_bytes(*tensor.entry, 0, {&row, 1});
    if (row != std::byte{0}) refuse_quantized(codes, name, "has a weight_format other than row");
  }
  matrices_.emplace(name, std::move(found));
}

const BnbMatrix* BnbTensors::find(const std::string& name) const {
  const auto found = matrices_.find(name);
  return found == matrices_.end() ? nullptr : &found->second;
}

void BnbMatrix::read_bytes(std::int64_t first, std::span<std::byte> to) const {
  const std::int64_t end = first + static_cast<std::int64_t>(to.size());
  std::ranges::fill(to, std::byte{0});
  const auto overlap = [&](std::int64_t begin, std::int64_t bytes, const auto& copy) {
    const std::int64_t from = std::max(first, begin), until = std::min(end, begin + bytes);
    if (from < until)
      copy(from - begin, to.subspan(static_cast<std::size_t>(from - first), static_cast<std::size_t>(until - from)));
  };
  for (const Part& part : parts_)
    overlap(part.begin, static_cast<std::int64_t>(part.tensor.entry->end - part.tensor.entry->begin),
            [&](std::int64_t at, std::span<std::byte> bytes) {
              part.tensor.file->read_bytes(*part.tensor.entry, static_cast<std::uint64_t>(at), bytes);
            });
  if (is_nested(matrix_.format))
    overlap(matrix_.offset_at(), sizeof mean_, [&](std::int64_t at, std::span<std::byte> bytes) {
      std::memcpy(bytes.data(), reinterpret_cast<const std::byte*>(&mean_) + at, bytes.size());
    });
}

/// Dequantizes the smallest matrix of whole blocks of absmax, or whole rows, that holds the elements.
void BnbMatrix::read_elements(std::int64_t first, std::int64_t count, float* to) const {
  if (count == 0) return;
  const bool four_bit = is_4bit(matrix_.format), nested = is_nested(matrix_.format);
  const std::int64_t step = four_bit ? QuantizedMatrix::block * QuantizedMatrix::nested_block : matrix_.columns;
  const std::int64_t begin = first / step * step,
                     end = std::min((first + count + step - 1) / step * step, matrix_.numel());
  const QuantizedMatrix piece = four_bit ? QuantizedMatrix{matrix_.format, 1, end - begin}
                                         : QuantizedMatrix{matrix_.format, (end - begin) / step, step};
  std::vector<std::byte> bytes(static_cast<std::size_t>(piece.bytes()));
  const auto copy = [&](std::int64_t piece_at, std::int64_t at, std::int64_t n) {
    read_bytes(at, std::span(bytes).subspan(static_cast<std::size_t>(piece_at), static_cast<std::size_t>(n)));
  };
  copy(0, four_bit ? begin / 2 : begin, piece.code_bytes());
  if (nested) {
    copy(piece.absmax_at(), matrix_.absmax_at() + begin / QuantizedMatrix::block, piece.groups());
    copy(piece.scales_at(), matrix_.scales_at() + 4 * (begin / step), 4 * piece.nested_groups());
    copy(piece.offset_at(), matrix_.offset_at(), 4);
  } else {
    copy(piece.scales_at(), matrix_.scales_at() + 4 * (begin / matrix_.group()), 4 * piece.groups());
  }
  std::vector<float> values(static_cast<std::size_t>(piece.numel()));
  kernels::dequantize({.matrix = piece,
                       .bytes = {bytes.data(), DType::u8, Shape{piece.bytes()}},
                       .out = {values.data(), Shape{piece.rows, piece.columns}}},
                      host_stream);
  std::copy_n(values.begin() + (first - begin), count, to);
}

}  // namespace tessera::io
