// SPDX-License-Identifier: Apache-2.0
// A block of the output from slices of the source.
#include "io/convert/block_converter.hpp"

#include <algorithm>
#include <cstring>
#include <tuple>

#include "kernels/convert.hpp"

namespace tessera::io {

namespace {

std::uint64_t bytes_of(const OutputTensor& t) { return static_cast<std::uint64_t>(t.numel) * size_of(t.dtype); }

/// Of an unknown type: bytes, whose width is that of TensorEntry::dtype (u8) there.
std::int64_t num_elements(const TensorEntry& tensor) {
  return tensor.known ? tensor.numel() : static_cast<std::int64_t>(tensor.bytes);
}

void check_slices(const OutputTensor& t, const TensorCatalog& source) {
  std::int64_t count = 0;
  for (const TensorSlice& s : t.slices) {
    const TensorEntry& from = source.tensors[static_cast<std::size_t>(s.tensor)];
    if ((!from.known && t.dtype != DType::u8) ||
        (from.dtype != t.dtype && (!is_float(from.dtype) || !is_float(t.dtype))))
      throw Error(ExitCode::data, strfmt("tensor %s is %s, which cannot become %s", quote_name(from.name).c_str(),
                                         from.type, name_of(t.dtype)));
    TESSERA_ASSERT(s.first >= 0 && s.count >= 0 && s.first <= num_elements(from) - s.count, "%s", from.name.c_str());
    count += s.count;
  }
  TESSERA_ASSERT(count == t.numel, "%s has %ld elements, its slices %ld", t.name.c_str(), t.numel, count);
}

void add(ConvertBuffers& buffers, ByteRange more) {
  buffers.ranges.push_back(more);
  if (!buffers.joined.empty() && buffers.joined.back().end == more.begin) buffers.joined.back().end = more.end;
  else buffers.joined.push_back(more);
}

/// The element that a cast could not convert, as a number.
double value_of(const std::byte* bytes, DType dtype) {
  double wide = 0;
  float value = 0;
  if (dtype == DType::f64) std::memcpy(&wide, bytes, sizeof wide);
  else if (kernels::convert_bytes({bytes, dtype, reinterpret_cast<std::byte*>(&value), DType::f32, 1}) == 1)
    wide = static_cast<double>(value);
  return wide;
}

}  // namespace

BlockConverter::BlockConverter(const TensorCatalog& source, ConversionPlan& plan) : source_(source), plan_(plan) {
  std::erase_if(plan.tensors, [](const OutputTensor& t) { return t.numel == 0; });
  std::ranges::sort(plan.tensors, [](const auto& a, const auto& b) {
    return std::tie(a.file, a.offset) < std::tie(b.file, b.offset);
  });
  std::size_t next = 0;
  for (std::size_t f = 0; f < plan.files.size(); ++f) {
    first_of_file_.push_back(next);
    const OutputFile& file = plan.files[f];
    auto& filled = filled_.emplace_back(static_cast<std::size_t>((file.bytes + block_bytes - 1) / block_bytes), 0);
    const auto count = [&](std::uint64_t at, std::uint64_t end) {
      while (at < end) {
        const std::uint64_t next_block = std::min(end, (at / block_bytes + 1) * block_bytes);
        filled[static_cast<std::size_t>(at / block_bytes)] += next_block - at;
        at = next_block;
      }
    };
    std::uint64_t at = file.header.size();
    count(0, at);
    for (; next < plan.tensors.size() && plan.tensors[next].file == static_cast<int>(f); ++next) {
      const OutputTensor& t = plan.tensors[next];
      check_slices(t, source);
      TESSERA_ASSERT(t.offset >= at && t.offset + bytes_of(t) <= file.bytes, "%s overlaps", t.name.c_str());
      count(t.offset, at = t.offset + bytes_of(t));
    }
  }
  first_of_file_.push_back(next);
}

std::span<const OutputTensor> BlockConverter::of_file(int file) const {
  const std::size_t first = first_of_file_[static_cast<std::size_t>(file)],
                    last = first_of_file_[static_cast<std::size_t>(file) + 1];
  return std::span(plan_.tensors).subspan(first, last - first);
}

const OutputTensor* BlockConverter::tensor_at(int file, std::uint64_t offset) const {
  const auto tensors = of_file(file);
  const auto behind = std::ranges::upper_bound(tensors, offset, {}, &OutputTensor::offset);
  if (behind == tensors.begin()) return nullptr;
  const OutputTensor& tensor = *(behind - 1);
  return offset < tensor.offset + bytes_of(tensor) ? &tensor : nullptr;
}

void BlockConverter::convert(int file, std::uint64_t block, BlockCache& cache, ConvertBuffers& buffers) const {
  const OutputFile& output = plan_.files[static_cast<std::size_t>(file)];
  const std::uint64_t begin = block * block_bytes, end = std::min(output.bytes, begin + block_bytes);
  std::byte* const out = buffers.block.span().data();
  buffers.ranges.clear();
  buffers.joined.clear();
  if (begin < output.header.size()) {
    const std::uint64_t last = std::min<std::uint64_t>(end, output.header.size());
    std::memcpy(out, output.header.data() + begin, static_cast<std::size_t>(last - begin));
    add(buffers, {begin, last});
  }
  const auto tensors = of_file(file);
  auto tensor = std::ranges::upper_bound(tensors, begin, {}, &OutputTensor::offset);
  if (tensor != tensors.begin()) --tensor;  // it may reach into this block
  for (; tensor != tensors.end() && tensor->offset < end; ++tensor) {
    const std::uint64_t first = std::max(begin, tensor->offset),
                        last = std::min(end, tensor->offset + bytes_of(*tensor));
    if (first >= last) continue;
    fill(*tensor, {first - tensor->offset, last - tensor->offset}, out + (first - begin), cache, buffers);
    add(buffers, {first, last});
  }
}

void BlockConverter::fill(const OutputTensor& tensor, ByteRange bytes, std::byte* out, BlockCache& cache,
                          ConvertBuffers& buffers) const {
  const std::uint64_t width = size_of(tensor.dtype);
  std::int64_t at = 0;  // first element of the slice
  for (const TensorSlice& slice : tensor.slices) {
    const ByteRange part{std::max(bytes.begin, static_cast<std::uint64_t>(at) * width),
                         std::min(bytes.end, static_cast<std::uint64_t>(at + slice.count) * width)};
    if (part.begin < part.end) fill_slice(tensor, slice, at, part, out + (part.begin - bytes.begin), cache, buffers);
    at += slice.count;
  }
}

/// Fills bytes of the tensor that all come from `slice`, which begins at element `at` of the tensor. They may begin and
/// end inside an element.
void BlockConverter::fill_slice(const OutputTensor& tensor, const TensorSlice& slice, std::int64_t at, ByteRange bytes,
                                std::byte* out, BlockCache& cache, ConvertBuffers& buffers) const {
  const TensorEntry& from = source_.tensors[static_cast<std::size_t>(slice.tensor)];
  const std::uint64_t width = size_of(tensor.dtype), source_width = size_of(from.dtype);
  const std::uint64_t start = from.offset + static_cast<std::uint64_t>(slice.first) * source_width;
  if (from.dtype == tensor.dtype) {
    cache.read(from.file, start + (bytes.begin - static_cast<std::uint64_t>(at) * width),
               {out, static_cast<std::size_t>(bytes.end - bytes.begin)});
    return;
  }
  constexpr auto most = static_cast<std::int64_t>(ConvertBuffers::cast_bytes / 8);
  const auto end = static_cast<std::int64_t>((bytes.end + width - 1) / width);
  for (auto element = static_cast<std::int64_t>(bytes.begin / width); element < end;) {
    const std::int64_t n = std::min(most, end - element), inside = element - at;
    const auto read = buffers.from.span().first(static_cast<std::size_t>(n) * source_width);
    cache.read(from.file, start + static_cast<std::uint64_t>(inside) * source_width, read);
    std::byte* const made = buffers.to.span().data();
    if (const std::int64_t good = kernels::convert_bytes({read.data(), from.dtype, made, tensor.dtype, n}); good < n)
      throw Error(ExitCode::data,
                  strfmt("E143 element %ld of tensor %s is %g, too large for %s", slice.first + inside + good,
                         quote_name(from.name).c_str(),
                         value_of(read.data() + static_cast<std::uint64_t>(good) * source_width, from.dtype),
                         name_of(tensor.dtype)),
                  {}, "Choose --dtype bf16 or fp32");
    const std::uint64_t made_at = static_cast<std::uint64_t>(element) * width;
    const ByteRange wanted{std::max(bytes.begin, made_at),
                           std::min(bytes.end, made_at + static_cast<std::uint64_t>(n) * width)};
    std::memcpy(out + (wanted.begin - bytes.begin), made + (wanted.begin - made_at),
                static_cast<std::size_t>(wanted.end - wanted.begin));
    element += n;
  }
}

}  // namespace tessera::io
