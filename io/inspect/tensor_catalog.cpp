// SPDX-License-Identifier: Apache-2.0
// Catalogs of the supported formats.
#include "io/inspect/tensor_catalog.hpp"

#include <algorithm>
#include <numeric>
#include <tuple>

#include "io/model/safetensors_index.hpp"

namespace tessera::io {

std::int64_t TensorEntry::numel() const {
  std::int64_t n = 1;
  for (const std::int64_t dimension : shape) n *= dimension;
  return n;
}

void TensorCatalog::make_index() {
  std::ranges::sort(tensors, [](const auto& a, const auto& b) {
    return std::tie(a.file, a.offset, a.name) < std::tie(b.file, b.offset, b.name);
  });
  by_name_.resize(tensors.size());
  std::iota(by_name_.begin(), by_name_.end(), std::size_t{0});
  std::ranges::sort(by_name_, {}, [&](std::size_t i) -> const std::string& { return tensors[i].name; });
}

const TensorEntry* TensorCatalog::find(const std::string& name) const {
  const auto at = std::ranges::lower_bound(by_name_, name, {},
                                           [&](std::size_t i) -> const std::string& { return tensors[i].name; });
  return at != by_name_.end() && tensors[*at].name == name ? &tensors[*at] : nullptr;
}

TensorCatalog catalog_safetensors(const std::string& path) {
  TensorCatalog result;
  for (const SafetensorsFile& file : open_safetensors_model(path)) {
    const int index = static_cast<int>(result.files.size());
    result.files.push_back(
        {file.path(), {.name = file.path(), .bytes = file.file_bytes(), .crcs = {}, .datasets = {}}});
    for (const auto& [key, value] : file.metadata())
      if (result.metadata.emplace(key, value).first->second != value) result.differing_metadata.insert(key);
    for (const auto& e : file.entries())
      result.tensors.push_back({e.name, e.type, e.known_dtype, e.dtype, e.shape, index, e.begin, e.end - e.begin});
  }
  result.make_index();
  return result;
}

namespace {
void append(const std::vector<Hdf5Dataset>& datasets, int file, std::vector<TensorEntry>& tensors) {
  for (const auto& d : datasets)
    tensors.push_back({d.path, safetensors_type(d.dtype).name, true, d.dtype, d.shape, file, d.offset, d.bytes});
}
}  // namespace

TensorCatalog catalog_checkpoint(const std::string& directory, const Manifest& manifest) {
  TensorCatalog result;
  for (const StateFile& file : manifest.files) {
    append(file.datasets, static_cast<int>(result.files.size()), result.tensors);
    result.files.push_back({directory + "/" + file.name, file});
  }
  result.make_index();
  return result;
}

TensorCatalog catalog_hdf5(const std::string& path, const std::vector<Hdf5Dataset>& datasets) {
  TensorCatalog result;
  const std::uint64_t file_bytes = File::open_to_read(path).size();
  for (const auto& d : datasets) {  // from a sandboxed process and a file that may be hostile
    std::uint64_t bytes = size_of(d.dtype);
    bool good = d.offset <= file_bytes && d.bytes <= file_bytes - d.offset;
    for (const std::int64_t dimension : d.shape)
      good = good && dimension >= 0 && !__builtin_mul_overflow(bytes, static_cast<std::uint64_t>(dimension), &bytes);
    if (!good || bytes != d.bytes)
      throw Error(ExitCode::data, "E122 " + path + ": " + quote_name(d.path) + " is not where the file says it is");
  }
  append(datasets, 0, result.tensors);
  result.files.push_back({path, {.name = path, .bytes = file_bytes, .crcs = {}, .datasets = {}}});
  result.make_index();
  return result;
}

}  // namespace tessera::io
