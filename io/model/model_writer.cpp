// write_model: temporary files, every rank its own slices, then renames.

#include <algorithm>
#include <filesystem>

#include "io/file/file.hpp"
#include "io/file/text_file.hpp"
#include "io/model/auxiliary_files.hpp"
#include "io/model/model_io.hpp"
#include "runtime/base/transfer.hpp"

namespace tessera::io {

namespace {

namespace fs = std::filesystem;

/// One rank's part of writing a model. The files are the directory's "NAME.tmp" until commit().
class ModelWriter {
 public:
  ModelWriter(std::string directory, std::span<const ParamSpec> params, const WriteModelOptions& options)
      : directory_(std::move(directory)), companions_from_(options.companions) {
    std::vector<SafetensorsTensor> tensors;
    for (const auto& p : params) tensors.push_back({.name = p.name, .dtype = DType::f32, .shape = p.shape});
    model_ = plan_model_files(tensors, options.max_shard_bytes);
    for (const auto& file : model_.files) data_bytes_ += file.plan.file_bytes - file.plan.header.size();
  }

  /// Rank 0: every file under a temporary name, those of weights with header and space taken.
  void prepare(const std::string& config) {
    make_directories(directory_);
    for (const auto& file : model_.files) {
      File out = File::create(temporary(file.name));
      names_.push_back(file.name);
      out.allocate(file.plan.file_bytes);
      out.write_at(0, std::as_bytes(std::span(file.plan.header)));
      out.sync();
      out.close();
    }
    if (!model_.index.empty()) text_file(index_file_name, model_.index);
    copy_companions();
    text_file("config.json", config);
  }

  /// Wherever they lie: a device's by way of a window.
  static void write_elements(File& file, std::uint64_t offset, std::span<const float> elements, Device device) {
    if (device == host_device) return file.write_at(offset, std::as_bytes(elements));
    std::vector<float> window(std::min(elements.size(), host_staging_bytes / sizeof(float)));
    for (std::size_t done = 0; done < elements.size(); done += window.size()) {
      const std::span piece(window.data(), std::min(window.size(), elements.size() - done));
      copy_now(device, piece.data(), elements.data() + done, piece.size_bytes());
      file.write_at(offset + done * sizeof(float), std::as_bytes(piece));
    }
  }

  /// Any rank: the slices of its shards, on stable storage. Returns the bytes written.
  std::uint64_t write(const shard::ShardLayout& layout, std::span<const ShardView> shards) const {
    std::vector<File> files(model_.files.size());  // opened where this rank has something for them
    std::uint64_t written = 0;
    for (const auto& view : shards) {
      const std::int64_t first = view.shard * layout.shard_numel(view.unit);
      for (const auto& s : layout.segments(view.unit, view.shard)) {
        const ModelFiles::Place& place = model_.places[static_cast<std::size_t>(s.param)];
        File& file = files[static_cast<std::size_t>(place.file)];
        if (file.descriptor() < 0)
          file = File::open_to_write(temporary(model_.files[static_cast<std::size_t>(place.file)].name));
        const std::span elements(view.data + (s.unit_offset - first), static_cast<std::size_t>(s.length));
        write_elements(file, place.begin + static_cast<std::uint64_t>(s.param_offset) * sizeof(float), elements,
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

  /// Rank 0: gives the files their names in the order in which they were made: config.json is never newer than its
  /// weights.
  void commit(std::uint64_t written) const {
    TESSERA_ASSERT(written == data_bytes_, "%llu bytes written of %llu", static_cast<unsigned long long>(written),
                   static_cast<unsigned long long>(data_bytes_));
    for (const std::string& name : names_) {
      if (name == "config.json") remove_other_form();
      commit_rename(temporary(name), directory_ + "/" + name);
    }
  }

  void discard() const noexcept {
    for (const std::string& name : names_) remove_quietly(temporary(name));
    remove_quietly(temporary("config.json"));
  }

 private:
  [[nodiscard]] std::string temporary(const std::string& name) const { return directory_ + "/" + name + ".tmp"; }

  void text_file(const std::string& name, const std::string& text) {
    File file = File::create(temporary(name));
    names_.push_back(name);
    file.write_at(0, std::as_bytes(std::span(text)));
    file.sync();
    file.close();
  }

  void copy_companions() {
    std::error_code failed;
    if (companions_from_.empty() || fs::equivalent(companions_from_, directory_, failed)) return;
    for (const std::string& name : auxiliary_file_names())
      if (fs::is_regular_file(companions_from_ + "/" + name, failed))
        text_file(name, read_text(companions_from_ + "/" + name, std::size_t{1} << 30));
  }

  /// A reader that finds model.safetensors looks at no index: what stood here before must not be what it finds.
  void remove_other_form() const {
    remove_quietly(directory_ + "/" + (model_.index.empty() ? index_file_name : model_file_name));
  }

  std::string directory_, companions_from_;
  ModelFiles model_;
  std::uint64_t data_bytes_ = 0;
  std::vector<std::string> names_;  // rank 0: made, in order
};

}  // namespace

void write_model(World& world, const std::string& directory, const std::string& config,
                 std::span<const ParamSpec> params, const shard::ShardLayout& layout, std::span<const ShardView> shards,
                 bool write_here, const WriteModelOptions& options) {
  const bool root = world.rank() == 0;
  ModelWriter writer(directory, params, options);  // alike on every rank
  try {
    world.run_and_agree([&] {
      if (root) writer.prepare(config);
    });
    std::uint64_t written = 0;
    world.run_and_agree([&] {
      if (write_here) written = writer.write(layout, shards);
    });
    const std::int64_t all = world.sum(static_cast<std::int64_t>(written));
    world.run_and_agree([&] {
      if (root) writer.commit(static_cast<std::uint64_t>(all));
    });
  } catch (...) {
    if (root) writer.discard();
    throw;
  }
}

}  // namespace tessera::io
