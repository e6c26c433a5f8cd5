// write_model: every rank writes its own slices of the weight files.

#include <algorithm>

#include "io/file/file.hpp"
#include "io/model/model_directory.hpp"
#include "io/model/model_io.hpp"
#include "runtime/base/transfer.hpp"

namespace tessera::io {

namespace {

/// A device's memory is copied through a host buffer.
void write_elements(const File& file, std::uint64_t offset, std::span<const float> elements, Device device) {
  if (device == host_device) return file.write_at(offset, std::as_bytes(elements));
  std::vector<float> buffer(std::min(elements.size(), host_staging_bytes / sizeof(float)));
  for (std::size_t done = 0; done < elements.size(); done += buffer.size()) {
    const std::span copied(buffer.data(), std::min(buffer.size(), elements.size() - done));
    copy_now(device, copied.data(), elements.data() + done, copied.size_bytes());
    file.write_at(offset + done * sizeof(float), std::as_bytes(copied));
  }
}

/// The slices of this rank's shards, durably. Returns the bytes written.
std::uint64_t write_shards(const ModelFiles& model, const std::vector<std::string>& paths,
                           const shard::ShardLayout& layout, std::span<const ShardView> shards) {
  std::vector<File> files(paths.size());  // those that this rank writes to
  std::uint64_t written = 0;
  for (const auto& view : shards) {
    const std::int64_t first = view.shard * layout.shard_numel(view.unit);
    for (const auto& s : layout.segments(view.unit, view.shard)) {
      const ModelFiles::TensorLocation& location = model.locations[static_cast<std::size_t>(s.param)];
      const auto f = static_cast<std::size_t>(location.file);
      if (files[f].descriptor() < 0) files[f] = File::open_to_write(paths[f]);
      const std::span elements(view.data + (s.unit_offset - first), static_cast<std::size_t>(s.length));
      write_elements(files[f], location.begin + static_cast<std::uint64_t>(s.param_offset) * sizeof(float), elements,
                     view.device);
      written += elements.size_bytes();
    }
  }
  for (File& file : files) {
    if (file.descriptor() < 0) continue;
    file.sync();
    file.close();
  }
  return written;
}

void write_headers(const ModelFiles& model, const std::vector<std::string>& paths) {
  for (std::size_t f = 0; f < paths.size(); ++f) {
    File file = File::open_to_write(paths[f]);
    file.write_at(0, std::as_bytes(std::span(model.files[f].plan.header)));
    file.sync();
    file.close();
  }
}

}  // namespace

void write_model(World& world, const std::string& directory, const std::string& config,
                 std::span<const ParamSpec> params, const shard::ShardLayout& layout, std::span<const ShardView> shards,
                 bool write_here, const WriteModelOptions& options) {
  std::vector<SafetensorsTensor> tensors;
  for (const auto& p : params) tensors.push_back({.name = p.name, .dtype = DType::f32, .shape = p.shape});
  const ModelFiles model = plan_model_files(tensors, options.max_shard_bytes);
  std::uint64_t expected = 0, written = 0;
  for (const auto& file : model.files) expected += file.plan.file_bytes - file.plan.header.size();

  ModelDirectory target(world, directory, model, ModelDirectory::Holds::other_files);
  std::vector<AuxiliaryFile> auxiliary_files;
  world.run_and_agree([&] {
    if (world.rank() == 0) {
      write_headers(model, target.paths());
      if (!options.auxiliary_source.empty()) auxiliary_files = read_auxiliary_files(options.auxiliary_source);
      auxiliary_files.push_back({"config.json", config});
    }
    if (write_here) written = write_shards(model, target.paths(), layout, shards);
  });
  const auto all = static_cast<std::uint64_t>(world.sum(static_cast<std::int64_t>(written)));
  TESSERA_ASSERT(all == expected, "%lu bytes written of %lu", all, expected);
  target.commit(auxiliary_files);
}

}  // namespace tessera::io
