// read_model: this rank's intervals of each parameter, wherever its tensor lies.

#include <algorithm>
#include <cstring>
#include <filesystem>

#include "io/model/model_files.hpp"
#include "io/model/model_io.hpp"
#include "io/model/model_match.hpp"
#include "io/model/safetensors_index.hpp"
#include "runtime/base/transfer.hpp"

namespace tessera::io {

namespace {

bool exists(const std::string& path) {
  std::error_code failed;
  return std::filesystem::exists(path, failed);
}

/// Why there is no model to open, as far as can be seen; returns if there is one.
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

/// Elements [first, first + count) of what is at `place`, wherever the shard lies.
void read_elements(const TensorRange& place, std::int64_t first, std::int64_t count, float* to, Device device) {
  if (device == host_device) return place.file->read(*place.entry, place.first + first, count, to);
  constexpr auto most = static_cast<std::int64_t>(host_staging_bytes / sizeof(float));  // elements at a time
  std::vector<float> piece(static_cast<std::size_t>(std::min(most, count)));
  for (std::int64_t done = 0; done < count; done += most) {
    const std::int64_t n = std::min(most, count - done);
    place.file->read(*place.entry, place.first + first + done, n, piece.data());
    copy_now(device, to + done, piece.data(), static_cast<std::size_t>(n) * sizeof(float));
  }
}

void read_shard(const ModelMatch& match, const shard::ShardLayout& layout, const ShardView& view) {
  const std::int64_t first = view.shard * layout.shard_numel(view.unit);
  std::int64_t done = 0;  // elements of the shard that are filled
  for (const auto& s : layout.segments(view.unit, view.shard)) {
    const std::int64_t at = s.unit_offset - first;
    clear_now(view.device, view.data + done, static_cast<std::size_t>(at - done) * sizeof(float));
    read_elements(match.places[static_cast<std::size_t>(s.param)], s.param_offset, s.length, view.data + at,
                  view.device);
    done = at + s.length;
  }
  clear_now(view.device, view.data + done,
            static_cast<std::size_t>(layout.shard_numel(view.unit) - done) * sizeof(float));
}

/// This rank's elements of the copy against those of the parameter, which the shard holds by now.
void check_copy(const ModelMatch::Copy& copy, const ParamSpec& param, const shard::ShardLayout& layout,
                const ShardView& view) {
  constexpr std::int64_t most = 1 << 18;  // elements at a time
  std::vector<float> piece, held;
  const std::int64_t first = view.shard * layout.shard_numel(view.unit);
  for (const auto& s : layout.segments(view.unit, view.shard)) {
    if (s.param != copy.param) continue;
    for (std::int64_t done = 0; done < s.length; done += most) {
      const std::int64_t count = std::min(most, s.length - done);
      piece.resize(static_cast<std::size_t>(count));
      copy.place.file->read(*copy.place.entry, s.param_offset + done, count, piece.data());
      held.resize(piece.size());
      copy_now(view.device, held.data(), view.data + (s.unit_offset - first) + done, held.size() * sizeof(float));
      if (std::memcmp(piece.data(), held.data(), piece.size() * sizeof(float)) != 0)
        throw Error(ExitCode::data,
                    "E114 " + copy.place.file->path() + ": " + quote_name(copy.place.entry->name) +
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
    const ModelMatch match = match_model(files, directory, params, use);
    for (const ShardView& view : shards) read_shard(match, layout, view);
    for (const ModelMatch::Copy& copy : match.copies)
      for (const ShardView& view : shards) check_copy(copy, params[static_cast<std::size_t>(copy.param)], layout, view);
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
