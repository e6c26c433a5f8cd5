// read_model: this rank's elements of each parameter.

#include <algorithm>
#include <cstring>

#include "io/model/model_files.hpp"
#include "io/model/model_io.hpp"
#include "io/model/model_match.hpp"
#include "io/model/safetensors_index.hpp"
#include "runtime/base/transfer.hpp"

namespace tessera::io {

namespace {

/// Throws if there is no model to open, and says what there is instead.
void require_files(const std::string& directory) {
  const std::string path = directory + "/" + model_file_name;
  if (exists(path) || exists(directory + "/" + index_file_name)) return;
  if (!exists(directory))
    throw Error(ExitCode::data, "no directory " + directory, {}, "Give --model DIR, or train --from_scratch");
  if (exists(directory + "/pytorch_model.bin"))
    throw Error(ExitCode::data, directory + " holds pytorch_model.bin, which is not read, and no model.safetensors", {},
                "Save the model with safe_serialization, or train --from_scratch");
  throw Error(ExitCode::data, "no model.safetensors in " + directory, {},
              "Train --from_scratch, or give a directory with weights");
}

/// A model's files and their tensors, in the order of match_model's.
class ModelTensors {
 public:
  explicit ModelTensors(const std::vector<SafetensorsFile>& files) {
    for (const SafetensorsFile& file : files)
      for (const SafetensorsEntry& e : file.entries()) {
        infos_.push_back({e.name, e.shape, e.type, e.known_dtype && is_float(e.dtype)});
        tensors_.push_back({&file, &e});
      }
  }
  [[nodiscard]] std::span<const TensorInfo> infos() const { return infos_; }
  [[nodiscard]] const std::string& path(int tensor) const { return at(tensor).file->path(); }
  [[nodiscard]] const std::string& name(int tensor) const { return at(tensor).entry->name; }

  void read(int tensor, std::int64_t first, std::int64_t count, float* to) const {
    at(tensor).file->read(*at(tensor).entry, first, count, to);
  }
  /// To a device through a host buffer.
  void read(int tensor, std::int64_t first, std::int64_t count, float* to, Device device) const {
    if (device == host_device) return read(tensor, first, count, to);
    constexpr auto most = static_cast<std::int64_t>(host_staging_bytes / sizeof(float));
    std::vector<float> buffer(static_cast<std::size_t>(std::min(most, count)));
    for (std::int64_t done = 0; done < count; done += most) {
      const std::int64_t n = std::min(most, count - done);
      read(tensor, first + done, n, buffer.data());
      copy_now(device, to + done, buffer.data(), static_cast<std::size_t>(n) * sizeof(float));
    }
  }

 private:
  struct Tensor {
    const SafetensorsFile* file;
    const SafetensorsEntry* entry;
  };
  [[nodiscard]] const Tensor& at(int tensor) const { return tensors_[static_cast<std::size_t>(tensor)]; }
  std::vector<Tensor> tensors_;
  std::vector<TensorInfo> infos_;
};

void read_shard(const ModelTensors& tensors, const ModelMatch& match, const shard::ShardLayout& layout,
                const ShardView& view) {
  const std::int64_t first = view.shard * layout.shard_numel(view.unit);
  std::int64_t done = 0;  // elements of the shard that are filled
  for (const auto& s : layout.segments(view.unit, view.shard)) {
    const std::int64_t at = s.unit_offset - first;
    clear_now(view.device, view.data + done, static_cast<std::size_t>(at - done) * sizeof(float));
    const auto& [tensor, in_tensor] = match.params[static_cast<std::size_t>(s.param)];
    tensors.read(tensor, in_tensor + s.param_offset, s.length, view.data + at, view.device);
    done = at + s.length;
  }
  clear_now(view.device, view.data + done,
            static_cast<std::size_t>(layout.shard_numel(view.unit) - done) * sizeof(float));
}

/// Compares this rank's elements of the copy with those of the parameter, which the shard holds by now.
void check_copy(const ModelTensors& tensors, const ModelMatch::Copy& copy, const ParamSpec& param,
                const shard::ShardLayout& layout, const ShardView& view) {
  constexpr std::int64_t most = 1 << 18;  // elements at a time
  std::vector<float> stored, held;
  const std::int64_t first = view.shard * layout.shard_numel(view.unit);
  for (const auto& s : layout.segments(view.unit, view.shard)) {
    if (s.param != copy.param) continue;
    for (std::int64_t done = 0; done < s.length; done += most) {
      const std::int64_t count = std::min(most, s.length - done);
      stored.resize(static_cast<std::size_t>(count));
      tensors.read(copy.tensor, s.param_offset + done, count, stored.data());
      held.resize(stored.size());
      copy_now(view.device, held.data(), view.data + (s.unit_offset - first) + done, held.size() * sizeof(float));
      if (std::memcmp(stored.data(), held.data(), stored.size() * sizeof(float)) != 0)
        throw Error(ExitCode::data,
                    "E114 " + tensors.path(copy.tensor) + ": " + quote_name(tensors.name(copy.tensor)) +
                        " is not equal to " + quote_name(param.name) + ", which the config ties it to",
                    {}, "Set tie_word_embeddings as the weights were trained, or remove the tensor");
    }
  }
}

}  // namespace

std::uint64_t read_model(World& world, const std::string& directory, std::span<const ParamSpec> params,
                         const shard::ShardLayout& layout, std::span<const ShardView> shards,
                         const std::function<TensorUse(const std::string&)>& use) {
  std::uint64_t bytes = 0;
  world.run_and_agree([&] {
    require_files(directory);
    const std::vector<SafetensorsFile> files = open_safetensors_model(directory);
    const ModelTensors tensors(files);
    const ModelMatch match = match_model(tensors.infos(), directory, params, use);
    for (const ShardView& view : shards) read_shard(tensors, match, layout, view);
    for (const ModelMatch::Copy& copy : match.copies)
      for (const ShardView& view : shards)
        check_copy(tensors, copy, params[static_cast<std::size_t>(copy.param)], layout, view);
    for (const SafetensorsFile& file : files) bytes += file.bytes_read();
  });
  return bytes;
}

std::uint64_t read_model(World& world, const std::string& directory, std::span<const ParamSpec> params,
                         const shard::ShardLayout& layout, std::span<const ShardView> shards,
                         const std::function<std::string(const std::string&)>& canonical) {
  return read_model(world, directory, params, layout, shards, [&](const std::string& name) {
    const std::string parameter = canonical(name);
    return parameter.empty() ? TensorUse{} : TensorUse{.parts = {parameter}, .shape = {}, .same_as = ""};
  });
}

}  // namespace tessera::io
