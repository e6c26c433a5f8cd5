// read_model: which tensor of the file is which parameter, and this rank's intervals of each.

#include <algorithm>
#include <filesystem>
#include <map>

#include "io/model_file.hpp"
#include "io/safetensors.hpp"

namespace tessera::io {

namespace {

constexpr const char* file_name = "model.safetensors";

bool exists(const std::string& path) {
  std::error_code failed;
  return std::filesystem::exists(path, failed);
}

/// Why there is no model file to open, as far as can be seen; returns if there is one.
void require_file(const std::string& directory) {
  const std::string path = directory + "/" + file_name;
  if (exists(path)) return;
  if (!exists(directory))
    throw Error(ExitCode::data, "no directory " + directory, {}, "Give --model DIR, or train --from_scratch");
  if (exists(path + ".index.json"))
    throw Error(ExitCode::data,
                directory + " holds its weights in several files (model.safetensors.index.json), which cannot be read yet", {},
                "Save the model as one file (save_pretrained with a max_shard_size above its size)");
  if (exists(directory + "/pytorch_model.bin"))
    throw Error(ExitCode::data, directory + " holds pytorch_model.bin, which is not read, and no model.safetensors", {},
                "Save the model with safe_serialization, or train --from_scratch");
  throw Error(ExitCode::data, "no model.safetensors in " + directory, {},
              "Train --from_scratch, or give a directory with weights");
}

std::string shape_text(const std::vector<std::int64_t>& dims) {
  std::string text = "[";
  for (std::size_t i = 0; i < dims.size(); ++i) text += (i > 0 ? ", " : "") + std::to_string(dims[i]);
  return text + "]";
}

bool same_shape(const std::vector<std::int64_t>& dims, const Shape& shape) {
  if (dims.size() != static_cast<std::size_t>(shape.rank())) return false;
  for (int d = 0; d < shape.rank(); ++d)
    if (dims[static_cast<std::size_t>(d)] != shape[d]) return false;
  return true;
}

bool is_float(const SafetensorsEntry& e) {
  return e.known_dtype && (e.dtype == DType::f32 || e.dtype == DType::f64 || e.dtype == DType::bf16 || e.dtype == DType::f16);
}

/// The tensor of each parameter. Throws one error that lists all that does not fit.
std::vector<const SafetensorsEntry*> match(const SafetensorsFile& file, const std::string& path,
                                           std::span<const ParamSpec> params,
                                           const std::function<std::string(const std::string&)>& canonical) {
  std::map<std::string, std::size_t> index;
  for (std::size_t i = 0; i < params.size(); ++i) index.emplace(params[i].name, i);
  std::vector<const SafetensorsEntry*> found(params.size(), nullptr);
  std::string missing, unexpected, wrong;
  for (const auto& entry : file.entries()) {
    const std::string name = canonical(entry.name);
    if (name.empty()) continue;
    const auto at = index.find(name);
    if (at == index.end()) {
      unexpected += " " + shown(entry.name);
      continue;
    }
    const SafetensorsEntry*& slot = found[at->second];
    const Shape& shape = params[at->second].shape;
    if (slot != nullptr) wrong += " " + shown(entry.name) + " is " + shown(slot->name) + " again;";
    else if (!same_shape(entry.shape, shape))
      wrong += " " + shown(entry.name) + " is " + shape_text(entry.shape) + ", not " + shape.str() + ";";
    else if (!is_float(entry)) wrong += " " + shown(entry.name) + " is " + entry.type + ", no float;";
    if (slot == nullptr) slot = &entry;
  }
  for (std::size_t i = 0; i < params.size(); ++i)
    if (found[i] == nullptr) missing += " " + shown(params[i].name);
  if (missing.empty() && unexpected.empty() && wrong.empty()) return found;
  std::string text = path + " does not fit config.json:";
  if (!missing.empty()) text += " missing:" + missing + ";";
  if (!unexpected.empty()) text += " unexpected:" + unexpected + ";";
  if (!wrong.empty()) text += wrong;
  text.pop_back();
  throw Error(ExitCode::data, text, {}, "Give the config.json that belongs to these weights");
}

}  // namespace

std::uint64_t read_model(World& world, const std::string& directory, std::span<const ParamSpec> params,
                         const shard::ShardLayout& layout, std::span<const ShardView> shards,
                         const std::function<std::string(const std::string&)>& canonical) {
  std::uint64_t bytes = 0;
  world.together([&] {
    require_file(directory);
    const std::string path = directory + "/" + file_name;
    const SafetensorsFile file(path);
    const auto tensors = match(file, path, params, canonical);
    for (const auto& view : shards) {
      const std::int64_t first = view.shard * layout.shard_numel(view.unit);
      std::int64_t done = 0;  // elements of the shard that are filled
      for (const auto& s : layout.segments(view.unit, view.shard)) {
        const std::int64_t at = s.unit_offset - first;
        std::fill(view.data + done, view.data + at, 0.0F);
        file.read(*tensors[static_cast<std::size_t>(s.param)], s.param_offset, s.length, view.data + at);
        done = at + s.length;
      }
      std::fill(view.data + done, view.data + layout.shard_numel(view.unit), 0.0F);
    }
    bytes = file.bytes_read();
  });
  return bytes;
}

}  // namespace tessera::io
