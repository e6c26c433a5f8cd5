// SPDX-License-Identifier: Apache-2.0
// Loading: rank 0 reads the manifest, each rank the bytes that it needs.
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <memory>
#include <set>

#include "io/checkpoint/blocks.hpp"
#include "io/checkpoint/checkpoint.hpp"
#include "io/file/crc32c.hpp"
#include "io/file/text_file.hpp"
#include "io/model/foreign_checkpoint.hpp"
#include "runtime/base/log.hpp"
#include "runtime/base/transfer.hpp"

namespace tessera::io {

Manifest read_manifest(const std::string& directory) {
  struct stat there {};
  if (::stat(directory.c_str(), &there) != 0) throw system_error("read", directory, errno);
  const std::string path = directory + "/" + manifest_name;
  if (::stat(path.c_str(), &there) != 0 && errno == ENOENT) {
    if (const auto foreign = find_foreign_checkpoint(directory)) throw foreign->error(directory);
    throw Error(ExitCode::data, "E130 " + directory + " has no " + manifest_name +
                                    ": it is not a checkpoint, or its save was interrupted");
  }
  Manifest manifest = parse_manifest(read_text(path, max_manifest_bytes), path);
  const auto check = [&](const std::string& name, std::uint64_t bytes) {
    const std::string file = directory + "/" + name;
    if (::lstat(file.c_str(), &there) != 0)
      throw errno == ENOENT ? Error(ExitCode::data, "E109 " + file + " is missing") : system_error("read", file, errno);
    if (!S_ISREG(there.st_mode)) throw Error(ExitCode::data, "E110 " + file + " is not a regular file");
    if (static_cast<std::uint64_t>(there.st_size) != bytes)
      throw Error(ExitCode::data,
                  strfmt("E109 %s has %ld bytes, the manifest says %lu", file.c_str(), there.st_size, bytes));
  };
  for (const auto& f : manifest.files) check(f.name, f.bytes);
  for (const auto& a : manifest.auxiliary_files) check(a.name, a.bytes);
  return manifest;
}

void check_headers(const std::string& directory, const Manifest& manifest) {
  for (std::size_t f = 0; f < manifest.files.size(); ++f) {
    const StateFile& file = manifest.files[f];
    const std::string path = directory + "/" + file.name;
    BlockReader reader(path, file);
    std::uint64_t at = 0;
    const auto check = [&](std::uint64_t until) {
      if (until > at)
        for (std::uint64_t b = at / block_bytes; b <= (until - 1) / block_bytes; ++b) (void)reader.block(b);
    };
    for (const auto& d : file.datasets) {
      check(d.offset);
      at = d.offset + d.bytes;
    }
    check(file.bytes);
    // Only after the checksums: libhdf5 is not safe with damaged headers.
    const Hdf5Contents catalog = read_hdf5(path);
    if (catalog.datasets != file.datasets)
      throw Error(ExitCode::data, "E122 " + path + " does not hold the data sets that the manifest says");
    const auto number = [&](const char* name) {
      const auto found = std::ranges::find(catalog.attributes, name, &Hdf5Attribute::name);
      return found == catalog.attributes.end() ? -1 : found->number;
    };
    if (number("step") != manifest.step || number("file") != static_cast<std::int64_t>(f + 1))
      throw Error(ExitCode::data, strfmt("E134 %s is file %ld of step %ld, the manifest is of step %ld", path.c_str(),
                                         number("file"), number("step"), manifest.step));
  }
}

std::string read_auxiliary_file(const std::string& directory, const AuxiliaryFileRecord& auxiliary_file) {
  const std::string path = directory + "/" + auxiliary_file.name;
  std::string text = read_text(path, static_cast<std::size_t>(auxiliary_file.bytes));
  if (text.size() != auxiliary_file.bytes || crc32c(0, std::as_bytes(std::span(text))) != auxiliary_file.crc)
    throw Error(ExitCode::data, "E123 " + path + " is damaged: its checksum is wrong");
  return text;
}

CheckpointReader::CheckpointReader(World& world, std::string directory)
    : world_(world), directory_(std::move(directory)) {
  const std::string text = world_.text_of_rank_0([&] {
    const Manifest manifest = read_manifest(directory_);
    check_headers(directory_, manifest);
    for (const AuxiliaryFileRecord& a : manifest.auxiliary_files) (void)read_auxiliary_file(directory_, a);
    return manifest_text(manifest);
  });
  manifest_ = parse_manifest(text, directory_ + "/" + manifest_name);
}

std::vector<std::string> CheckpointReader::paths() const {
  std::vector<std::string> paths;
  for (const auto& f : manifest_.files) paths.push_back(directory_ + "/" + f.name);
  return paths;
}

std::string CheckpointReader::auxiliary_file(const std::string& name) const {
  const auto found = std::ranges::find(manifest_.auxiliary_files, name, &AuxiliaryFileRecord::name);
  if (found == manifest_.auxiliary_files.end()) return {};
  return world_.text_of_rank_0([&] { return read_auxiliary_file(directory_, *found); });
}

namespace {

/// Padding between and after the parameters becomes zero. A block that begins in a parameter is the parameter's.
void clear_padding(const shard::ShardLayout& layout, const TrainingState& state) {
  for (const StateView& view : state.shards)
    for (const auto& [offset, length] : layout.gaps(view.unit)) {
      const std::int64_t first = view.shard * layout.shard_numel(view.unit),
                         last = first + layout.shard_numel(view.unit);
      const std::int64_t from = std::max(first, offset) - first, to = std::min(last, offset + length) - first;
      if (from >= to) continue;
      for (std::size_t v = 0; v < view.data.size() && v <= state.states.size(); ++v) {
        const StateSpec values = values_of(state, view, v);
        const std::size_t begin = values.bytes(from), end = values.bytes(to);
        if (begin < end)
          fill_now(view.data[v].device, static_cast<std::byte*>(view.data[v].data) + begin, 0, end - begin);
      }
    }
}

/// Parameters that were frozen when the files were written and are trained now start with zero states.
void clear_new_states(std::span<const ParamSpec> params, const shard::ShardLayout& layout, const TrainingState& state,
                      const std::vector<std::string>& frozen) {
  const std::set<std::string> names(frozen.begin(), frozen.end());
  for (const StateView& view : state.shards) {
    const std::int64_t first = view.shard * layout.shard_numel(view.unit);
    for (const shard::Segment& s : layout.segments(view.unit, view.shard)) {
      const ParamSpec& param = params[static_cast<std::size_t>(s.param)];
      if (!param.trainable || !names.contains(param.name)) continue;
      for (std::size_t v = 1; v <= state.states.size(); ++v) {
        const StateSpec& values = state.states[v - 1];
        fill_now(view.data[v].device, static_cast<std::byte*>(view.data[v].data) + values.bytes(s.unit_offset - first),
                 0, values.bytes(s.length));
      }
    }
  }
}

/// Ranges whose elements would straddle a block's end are read as they are and converted afterwards: they are small,
/// since larger data sets are aligned.
class UnalignedRanges {
 public:
  explicit UnalignedRanges(std::vector<StateRange>& ranges) {
    for (StateRange& e : ranges) {
      if (e.stored == e.held || e.offset % size_of(e.stored) == 0) continue;
      Part& part = parts_.emplace_back(Part{e, std::make_unique<std::vector<std::byte>>(e.bytes)});
      e = {e.file, e.offset, e.bytes, part.bytes->data(), e.unit, host_device, e.stored, e.stored};
    }
  }
  void convert() const {
    for (const Part& part : parts_) put_range(part.range, part.range.offset, *part.bytes);
  }

 private:
  struct Part {
    StateRange range;
    std::unique_ptr<std::vector<std::byte>> bytes;
  };
  std::vector<Part> parts_;
};

}  // namespace

void CheckpointReader::check_base(std::span<const ParamSpec> params, const shard::ShardLayout& layout,
                                  const TrainingState& state) const {
  const DType expected = manifest_.base->dtype;
  const std::set<std::string> frozen(manifest_.frozen.begin(), manifest_.frozen.end());
  if (const QuantFormat now = quantization_in(params); now != manifest_.base->quantization)
    return log::info(strfmt("base      was quantized to %s, and this one to %s: they are not compared",
                            name_of(manifest_.base->quantization), name_of(now)));
  for (const ParamSpec& param : params)
    if (frozen.contains(param.name) && !param.quantized && param.storage_dtype != DType::f32 &&
        param.storage_dtype != expected)
      return log::info(strfmt("base      was kept in %s, and this one is in %s: they are not compared",
                              name_of(expected), name_of(param.storage_dtype)));
  const BaseModel found = base_model(world_, params, layout, state, manifest_.frozen, expected);
  if (found == *manifest_.base) return;
  throw other_base_error(directory_, found.crc, manifest_.base->crc);
}

LoadReport CheckpointReader::load(std::span<const ParamSpec> params, const shard::ShardLayout& layout,
                                  const TrainingState& state, int threads) const {
  const auto begin = std::chrono::steady_clock::now();
  LoadReport report;
  std::uint64_t bytes = 0;
  std::vector<RangeChecksum> shared;
  if (manifest_.base) check_base(params, layout, state);
  world_.run_and_agree([&] {
    if (!state.states.empty() && !manifest_.optimizer)
      throw Error(
          ExitCode::data, directory_ + " has no optimizer state, only the model", {},
          "Start a new run from it with --model, or resume from a checkpoint that was saved without --save_only_model; "
          "--resume_only_model true continues with optimizer states that start at zero");
    auto wanted = [&] {
      try {
        return state_ranges(params, layout, state, manifest_.files, {manifest_.frozen, manifest_.base.has_value()},
                            std::nullopt);
      } catch (const Error& error) { throw Error(error.code(), directory_ + ": " + error.line()); }
    }();
    clear_padding(layout, state);
    clear_new_states(params, layout, state, manifest_.frozen);
    for (const StateRange& e : wanted) bytes += e.bytes;
    const UnalignedRanges unaligned(wanted);
    RangesRead read = read_ranges(paths(), manifest_.files, wanted, threads);
    unaligned.convert();
    report.bytes_read = read.bytes;
    shared = std::move(read.shared);
  });
  // Every rank checks a share of the blocks that several ranks have read parts of.
  std::string joined;
  for (const std::string& of_rank : world_.gather(pack_checksums(shared))) joined += of_rank;
  const std::vector<RangeChecksum> all = unpack_checksums({world_.broadcast(joined)});
  world_.run_and_agree([&] { check_shared(paths(), manifest_.files, all, world_.rank(), world_.size()); });
  report.bytes = static_cast<std::uint64_t>(world_.sum(static_cast<std::int64_t>(bytes)));
  report.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  return report;
}

}  // namespace tessera::io
