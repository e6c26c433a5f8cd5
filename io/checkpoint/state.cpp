#include "io/checkpoint/state.hpp"

#include <algorithm>
#include <map>

#include "io/file/file.hpp"
#include "runtime/shard/replica_segments.hpp"

namespace tessera::io {

const char* group_of(StateKind kind) {
  static constexpr const char* groups[] = {"/model/", "/optimizer/exp_avg/", "/optimizer/exp_avg_sq/"};
  return groups[static_cast<int>(kind)];
}

std::vector<StateFile> plan_state_files(std::span<const ParamSpec> params, bool optimizer, std::uint64_t file_bytes) {
  std::vector<StateFile> files;
  std::uint64_t in_file = 0;
  for (int k = 0; k < (optimizer ? num_state_kinds : 1); ++k)
    for (const ParamSpec& p : params) {
      if (p.name.empty() || p.name.find('/') != std::string::npos || p.name == "." || p.name.size() > 1024)
        throw Error(ExitCode::data, quote_name(p.name) + " cannot be the name of a data set");
      Hdf5Dataset d{.path = group_of(static_cast<StateKind>(k)) + p.name, .dtype = DType::f32, .shape = {}};
      for (int i = 0; i < p.shape.rank(); ++i) d.shape.push_back(p.shape[i]);
      d.bytes = static_cast<std::uint64_t>(p.numel()) * sizeof(float);
      if (files.empty() || in_file + d.bytes > file_bytes) {
        files.emplace_back();
        in_file = 0;
      }
      in_file += d.bytes;
      files.back().datasets.push_back(std::move(d));
    }
  for (std::size_t f = 0; f < files.size(); ++f) files[f].name = strfmt("state-%05zu-of-%05zu.h5", f + 1, files.size());
  return files;
}

namespace {

struct Location {
  int file = 0;
  const Hdf5Dataset* dataset = nullptr;
};

/// Finds each parameter's data sets and checks their shapes.
class Locations {
 public:
  Locations(std::span<const ParamSpec> params, const std::vector<StateFile>& files, int kinds)
      : num_params_(params.size()), locations_(params.size() * static_cast<std::size_t>(kinds)) {
    std::map<std::string, Location> by_path;
    for (std::size_t f = 0; f < files.size(); ++f)
      for (const auto& d : files[f].datasets) by_path[d.path] = {static_cast<int>(f), &d};
    for (int k = 0; k < kinds; ++k)
      for (std::size_t p = 0; p < params.size(); ++p)
        find(params[p], static_cast<StateKind>(k), by_path,
             locations_[static_cast<std::size_t>(k) * params.size() + p]);
    for (const auto& [path, location] : by_path)
      if (path.starts_with(group_of(StateKind::model))) note(path + " is unexpected");
    if (problems_ == 0) return;
    if (problems_ > max_listed_problems) list_ += strfmt("; and %d more", problems_ - max_listed_problems);
    throw Error(ExitCode::data, "the checkpoint is not of this model: " + list_, {},
                "Use the config.json that the checkpoint was saved with");
  }
  [[nodiscard]] const Location& at(int kind, int param) const {
    return locations_[static_cast<std::size_t>(kind) * num_params_ + static_cast<std::size_t>(param)];
  }

 private:
  static constexpr int max_listed_problems = 10;
  void note(const std::string& what) {
    if (++problems_ <= max_listed_problems) list_ += (problems_ == 1 ? "" : "; ") + what;
  }
  void find(const ParamSpec& p, StateKind kind, std::map<std::string, Location>& by_path, Location& out) {
    const auto found = by_path.find(group_of(kind) + p.name);
    if (found == by_path.end()) return note("E112 " + std::string(group_of(kind)) + p.name + " is missing");
    out = found->second;
    by_path.erase(found);
    Shape shape;
    if (out.dataset->shape.size() <= Shape::max_rank)
      for (const std::int64_t n : out.dataset->shape) shape.push_back(n);
    if (out.dataset->shape.size() > Shape::max_rank || !(shape == p.shape))
      note("E113 " + out.dataset->path + " is " + shape.str() + ", the model's is " + p.shape.str());
    else if (out.dataset->dtype != DType::f32)
      note("E122 " + out.dataset->path + " is " + name_of(out.dataset->dtype) + ", not fp32");
  }

  std::size_t num_params_;
  std::vector<Location> locations_;
  int problems_ = 0;
  std::string list_;
};

}  // namespace

std::vector<StateRange> state_ranges(std::span<const ParamSpec> params, const shard::ShardLayout& layout,
                                     std::span<const StateView> shards, const std::vector<StateFile>& files,
                                     std::optional<int> saver) {
  const bool moments = !shards.empty() && shards.front().data[1] != nullptr;
  const int kinds = moments ? num_state_kinds : 1;
  const Locations locations(params, files, kinds);
  std::vector<StateRange> ranges;
  for (const StateView& view : shards) {
    const std::int64_t begin = view.shard * layout.shard_numel(view.unit);
    for (const auto& s :
         saver ? shard::replica_segments(layout, view.unit, *saver) : layout.segments(view.unit, view.shard))
      for (int k = 0; k < kinds; ++k) {
        const Location& location = locations.at(k, s.param);
        ranges.push_back(
            {location.file, location.dataset->offset + static_cast<std::uint64_t>(s.param_offset) * sizeof(float),
             static_cast<std::uint64_t>(s.length) * sizeof(float),
             reinterpret_cast<std::byte*>(view.data[k] + (s.unit_offset - begin)), view.unit, view.device});
      }
  }
  std::ranges::sort(ranges, [](const StateRange& a, const StateRange& b) {
    return std::tie(a.file, a.offset) < std::tie(b.file, b.offset);
  });
  return ranges;
}

}  // namespace tessera::io
