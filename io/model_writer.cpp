// write_model: temporary files, every rank its own slices, then renames.

#include <algorithm>
#include <map>

#include "io/file.hpp"
#include "io/model_file.hpp"
#include "io/safetensors.hpp"

namespace tessera::io {

namespace {

/// One rank's part of writing a model. The files are the directory's "NAME.tmp" until commit().
class ModelWriter {
 public:
  ModelWriter(std::string directory, std::span<const ParamSpec> params) : directory_(std::move(directory)) {
    std::vector<SafetensorsTensor> tensors;
    for (const auto& p : params) tensors.push_back({.name = p.name, .dtype = DType::f32, .shape = p.shape});
    plan_ = plan_safetensors(tensors, {{"format", "pt"}});
    std::map<std::string, std::uint64_t> begin;
    for (const auto& e : plan_.entries) begin.emplace(e.name, e.begin);
    for (const auto& p : params) begin_.push_back(begin.at(p.name));
  }

  /// Rank 0: both files under temporary names, the model's with its header and its space taken.
  void prepare(const std::string& config) const {
    make_directories(directory_);
    File file = File::create(temporary("config.json"));
    file.write_at(0, std::as_bytes(std::span(config)));
    file.sync();
    file.close();
    file = File::create(temporary("model.safetensors"));
    file.allocate(plan_.file_bytes);
    file.write_at(0, std::as_bytes(std::span(plan_.header)));
    file.sync();
    file.close();
  }

  /// Any rank: the slices of its shards, on stable storage. Returns the bytes written.
  std::uint64_t write(const shard::ShardLayout& layout, std::span<const ShardView> shards) const {
    File file = File::open_to_write(temporary("model.safetensors"));
    std::uint64_t written = 0;
    for (const auto& view : shards) {
      const std::int64_t first = view.shard * layout.shard_numel(view.unit);
      for (const auto& s : layout.segments(view.unit, view.shard)) {
        const auto bytes = std::as_bytes(std::span(view.data + (s.unit_offset - first), static_cast<std::size_t>(s.length)));
        file.write_at(begin_[static_cast<std::size_t>(s.param)] + static_cast<std::uint64_t>(s.param_offset) * sizeof(float),
                      bytes);
        written += bytes.size();
      }
    }
    file.sync();
    file.close();
    return written;
  }

  /// Rank 0: gives the files their names; config.json last, so that it is never newer than its weights.
  void commit(std::uint64_t written) const {
    TESSERA_ASSERT(written == plan_.file_bytes - plan_.header.size(), "%llu bytes written of %llu",
                   static_cast<unsigned long long>(written),
                   static_cast<unsigned long long>(plan_.file_bytes - plan_.header.size()));
    commit_rename(temporary("model.safetensors"), directory_ + "/model.safetensors");
    commit_rename(temporary("config.json"), directory_ + "/config.json");
  }

  void discard() const noexcept {
    remove_quietly(temporary("model.safetensors"));
    remove_quietly(temporary("config.json"));
  }

 private:
  [[nodiscard]] std::string temporary(const std::string& name) const { return directory_ + "/" + name + ".tmp"; }

  std::string directory_;
  SafetensorsPlan plan_;
  std::vector<std::uint64_t> begin_;  // of each parameter, in bytes of the file
};

}  // namespace

void write_model(World& world, const std::string& directory, const std::string& config, std::span<const ParamSpec> params,
                 const shard::ShardLayout& layout, std::span<const ShardView> shards, bool write_here) {
  const bool root = world.rank() == 0;
  const ModelWriter writer(directory, params);  // pure: alike on every rank
  try {
    world.together([&] {
      if (root) writer.prepare(config);
    });
    std::uint64_t written = 0;
    world.together([&] {
      if (write_here) written = writer.write(layout, shards);
    });
    const std::int64_t all = world.sum(static_cast<std::int64_t>(written));
    world.together([&] {
      if (root) writer.commit(static_cast<std::uint64_t>(all));
    });
  } catch (...) {
    if (root) writer.discard();
    throw;
  }
}

}  // namespace tessera::io
