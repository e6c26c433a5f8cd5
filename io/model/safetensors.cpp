// SPDX-License-Identifier: Apache-2.0
// safetensors files: opening, reading slices as fp32, and laying out a new one.

#include "io/model/safetensors.hpp"

#include <algorithm>
#include <bit>
#include <nlohmann/json.hpp>
#include <numeric>

#include "io/file/lfs_pointer.hpp"
#include "io/file/link_text.hpp"
#include "kernels/convert.hpp"

namespace tessera::io {

static_assert(std::endian::native == std::endian::little,
              "files are little-endian, and their bytes are read as they are");

SafetensorsFile::SafetensorsFile(const std::string& path) : file_(File::open_to_read(path)) {
  const std::uint64_t size = file_bytes_ = file_.size();
  const auto refuse = [&](const char* code, const std::string& rule) { return safetensors_error(path, code, rule); };
  std::string head(static_cast<std::size_t>(std::min<std::uint64_t>(size, longest_link_text + 1)), '\0');
  file_.read_at(0, std::as_writable_bytes(std::span(head)));
  refuse_lfs_pointer(path, head);
  refuse_link_text(path, head);
  if (size < 8) throw refuse("E101", "it has only " + std::to_string(size) + " bytes");
  std::uint64_t length = 0;
  file_.read_at(0, std::as_writable_bytes(std::span(&length, 1)));
  if (length > max_safetensors_header)
    throw refuse("E102", "a header of " + std::to_string(length) + " bytes, more than 100000000");
  if (length > size - 8)
    throw refuse("E102", "a header of " + std::to_string(length) + " bytes in a file of " + std::to_string(size));
  std::string json(static_cast<std::size_t>(length), '\0');
  file_.read_at(8, std::as_writable_bytes(std::span(json)));
  bytes_read_ = 8 + length;
  header_ = parse_safetensors_header(json, size, path);
  index_names();
}

void SafetensorsFile::index_names() {
  by_name_.resize(header_.entries.size());
  std::iota(by_name_.begin(), by_name_.end(), std::size_t{0});
  std::sort(by_name_.begin(), by_name_.end(),
            [&](std::size_t a, std::size_t b) { return header_.entries[a].name < header_.entries[b].name; });
}

void SafetensorsFile::leave_out(const std::string& name) {
  std::erase_if(header_.entries, [&](const SafetensorsEntry& entry) { return entry.name == name; });
  index_names();
}

const SafetensorsEntry* SafetensorsFile::find(const std::string& name) const {
  const auto at = std::lower_bound(by_name_.begin(), by_name_.end(), name, [&](std::size_t i, const std::string& key) {
    return header_.entries[i].name < key;
  });
  return at != by_name_.end() && header_.entries[*at].name == name ? &header_.entries[*at] : nullptr;
}

void SafetensorsFile::read(const SafetensorsEntry& entry, std::int64_t first, std::int64_t count, float* out) const {
  TESSERA_ASSERT(first >= 0 && count >= 0 && count <= entry.numel() - first, "elements [%ld, +%ld) of %s", first, count,
                 entry.name.c_str());
  if (!entry.known_dtype || !is_float(entry.dtype))
    throw Error(ExitCode::data,
                strfmt("%s: tensor %s is %s, which cannot be read as fp32", file_.path().c_str(),
                       quote_name(entry.name).c_str(), entry.type),
                {}, "Convert it to F32, BF16, F16 or F64");
  const std::size_t width = size_of(entry.dtype);
  std::uint64_t offset = entry.begin + static_cast<std::uint64_t>(first) * width;
  if (entry.dtype == DType::f32) {
    file_.read_at(offset, std::as_writable_bytes(std::span(out, static_cast<std::size_t>(count))));
    bytes_read_ += static_cast<std::uint64_t>(count) * width;
    return;
  }
  std::vector<std::byte> block(std::min<std::size_t>(1u << 20, static_cast<std::size_t>(count) * width));
  for (std::int64_t done = 0; done < count;) {
    const auto n = std::min<std::int64_t>(count - done, static_cast<std::int64_t>(block.size() / width));
    const std::size_t bytes = static_cast<std::size_t>(n) * width;
    file_.read_at(offset, std::span(block).first(bytes));
    const std::int64_t good =
        kernels::convert_bytes({block.data(), entry.dtype, reinterpret_cast<std::byte*>(out + done), DType::f32, n});
    if (good != n)
      throw Error(ExitCode::data, strfmt("%s: element %ld of tensor %s is too large for fp32", file_.path().c_str(),
                                         first + done + good, quote_name(entry.name).c_str()));
    offset += bytes;
    bytes_read_ += bytes;
    done += n;
  }
}

void SafetensorsFile::read_bytes(const SafetensorsEntry& entry, std::uint64_t first, std::span<std::byte> to) const {
  TESSERA_ASSERT(first + to.size() <= entry.end - entry.begin, "bytes [%lu, +%zu) of %s", first, to.size(),
                 entry.name.c_str());
  file_.read_at(entry.begin + first, to);
  bytes_read_ += to.size();
}

const SafetensorsType& SafetensorsTensor::type() const { return stored ? *stored->type : safetensors_type(dtype); }

std::vector<std::int64_t> SafetensorsTensor::dimensions() const {
  if (stored) return stored->shape;
  std::vector<std::int64_t> dimensions;
  for (int d = 0; d < shape.rank(); ++d) dimensions.push_back(shape[d]);
  return dimensions;
}

std::uint64_t SafetensorsTensor::bytes() const {
  std::uint64_t bits = type().bits;
  for (const std::int64_t dimension : dimensions()) bits *= static_cast<std::uint64_t>(dimension);
  return bits / 8;
}

SafetensorsPlan plan_safetensors(const std::vector<SafetensorsTensor>& tensors,
                                 const std::map<std::string, std::string>& metadata) {
  std::vector<const SafetensorsTensor*> order;
  for (const auto& t : tensors) order.push_back(&t);
  std::sort(order.begin(), order.end(), [](const auto* a, const auto* b) {
    const auto *x = &a->type(), *y = &b->type();
    return x != y ? x > y : a->name < b->name;  // later in the table: wider alignment
  });
  for (std::size_t i = 0; i < order.size(); ++i)
    if (order[i]->name == "__metadata__" || (i > 0 && order[i]->name == order[i - 1]->name))
      throw Error(ExitCode::data, "cannot write tensor " + quote_name(order[i]->name) + ": the name is taken");

  SafetensorsPlan plan;
  std::uint64_t at = 0;
  nlohmann::ordered_json json = nlohmann::ordered_json::object();
  if (!metadata.empty()) json["__metadata__"] = metadata;
  for (const auto* t : order) {
    const SafetensorsType& type = t->type();
    SafetensorsEntry entry{
        .name = t->name, .dtype = type.dtype, .shape = t->dimensions(), .type = type.name, .known_dtype = type.known};
    entry.begin = at;
    entry.end = at += t->bytes();
    plan.entries.push_back(std::move(entry));
  }
  std::string text;
  try {
    // Text and not ordered_json, whose objects search their keys one by one: slow with many tensors.
    text = json.dump();
    text.pop_back();
    for (const auto& e : plan.entries) {
      const nlohmann::ordered_json body = {{"dtype", e.type}, {"shape", e.shape}, {"data_offsets", {e.begin, e.end}}};
      text += (text.size() > 1 ? "," : "") + nlohmann::json(e.name).dump() + ":" + body.dump();
    }
    text += '}';
  } catch (const nlohmann::json::exception&) {
    throw Error(ExitCode::data, "cannot write a safetensors file: a name or its metadata is not UTF-8");
  }
  text.resize((text.size() + 7) / 8 * 8, ' ');
  if (text.size() > max_safetensors_header) throw Error(ExitCode::data, "too many tensors for one safetensors file");
  const std::uint64_t length = text.size();
  plan.header.assign(reinterpret_cast<const char*>(&length), 8);
  plan.header += text;
  for (auto& e : plan.entries) {
    e.begin += plan.header.size();
    e.end += plan.header.size();
  }
  plan.file_bytes = plan.header.size() + at;
  return plan;
}

}  // namespace tessera::io
