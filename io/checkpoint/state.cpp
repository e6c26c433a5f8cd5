// SPDX-License-Identifier: Apache-2.0
#include "io/checkpoint/state.hpp"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <tuple>

#include "io/file/file.hpp"
#include "runtime/shard/replica_segments.hpp"

namespace tessera::io {

namespace {

constexpr std::string_view optimizer_group = "/optimizer/";

/// A vector of the state in files: its group, and its values for a parameter.
struct StoredVector {
  std::string group;
  StateSpec values;
  bool optimizer = false;  // frozen parameters have none

  [[nodiscard]] bool has(const ParamSpec& param) const { return !optimizer || param.trainable; }
};

/// The parameters, then the optimizer's states.
std::vector<StoredVector> vectors_of(std::span<const StateSpec> states) {
  std::vector<StoredVector> vectors = {{model_group, {}}};
  for (const StateSpec& state : states) vectors.push_back({group_of(state), state, true});
  return vectors;
}

/// The values of a vector for one parameter, as they are saved; none if it has no such vector.
std::optional<StateSpec> saved_values(const StoredVector& vector, const ParamSpec& param, SavedParams saved) {
  if (!vector.has(param) || (!param.trainable && saved == SavedParams::trainable)) return std::nullopt;
  StateSpec values = vector.values;
  if (!vector.optimizer) values.dtype = param.storage_dtype;
  return values;
}

std::vector<std::int64_t> shape_in_file(const ParamSpec& param, const StateSpec& values) {
  const Shape whole = param.whole_shape();
  if (values.block > 1) return {values.count(whole.numel())};
  std::vector<std::int64_t> shape;
  for (int i = 0; i < whole.rank(); ++i) shape.push_back(whole[i]);
  return shape;
}

}  // namespace

std::string group_of(const StateSpec& state) { return std::string(optimizer_group) + state.name + "/"; }

StateSpec values_of(const TrainingState& state, const StateView& view, std::size_t index) {
  return index == 0 ? StateSpec{.name = {}, .dtype = view.data[0].dtype} : state.states[index - 1];
}

std::vector<std::string> state_names(const std::vector<StateFile>& files) {
  std::vector<std::string> names;
  for (const StateFile& file : files)
    for (const Hdf5Dataset& d : file.datasets) {
      if (!d.path.starts_with(optimizer_group)) continue;
      const std::size_t begin = optimizer_group.size();
      std::string name = d.path.substr(begin, d.path.find('/', begin) - begin);
      if (std::ranges::find(names, name) == names.end()) names.push_back(std::move(name));
    }
  return names;
}

std::vector<std::string> frozen_names(std::span<const ParamSpec> params) {
  std::vector<std::string> names;
  for (const ParamSpec& p : params)
    if (!p.trainable) names.push_back(p.name);
  return names;
}

std::uint64_t state_bytes(std::span<const ParamSpec> params, std::span<const StateSpec> states, SavedParams saved) {
  std::uint64_t bytes = 0;
  for (const StoredVector& vector : vectors_of(states))
    for (const ParamSpec& p : params)
      if (const auto values = saved_values(vector, p, saved)) bytes += values->bytes(p.whole_shape().numel());
  return bytes;
}

std::vector<StateFile> plan_state_files(std::span<const ParamSpec> params, std::span<const StateSpec> states,
                                        std::uint64_t file_bytes, SavedParams saved) {
  std::vector<StateFile> files;
  std::uint64_t in_file = 0;
  for (const StoredVector& vector : vectors_of(states))
    for (const ParamSpec& p : params) {
      if (p.name.empty() || p.name.find('/') != std::string::npos || p.name == "." || p.name.size() > 1024)
        throw Error(ExitCode::data, quote_name(p.name) + " cannot be the name of a data set");
      const auto values = saved_values(vector, p, saved);
      if (!values) continue;
      Hdf5Dataset d{.path = vector.group + p.name, .dtype = values->dtype, .shape = shape_in_file(p, *values)};
      d.bytes = values->bytes(p.whole_shape().numel());
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
  const Hdf5Dataset* dataset = nullptr;  // null: the files have none, because of a frozen parameter
};

/// Finds each parameter's data sets and checks their shapes.
class Locations {
 public:
  Locations(std::span<const ParamSpec> params, const std::vector<StateFile>& files,
            const std::vector<StoredVector>& vectors, const FrozenInFiles& frozen)
      : num_params_(params.size()),
        locations_(params.size() * vectors.size()),
        frozen_(frozen.names.begin(), frozen.names.end()),
        left_out_(frozen.left_out) {
    std::map<std::string, Location> by_path;
    for (std::size_t f = 0; f < files.size(); ++f)
      for (const auto& d : files[f].datasets) by_path[d.path] = {static_cast<int>(f), &d};
    for (std::size_t v = 0; v < vectors.size(); ++v)
      for (std::size_t p = 0; p < params.size(); ++p)
        if (vectors[v].has(params[p])) find(params[p], vectors[v], by_path, locations_[v * params.size() + p]);
    for (const auto& [path, location] : by_path)
      if (path.starts_with(model_group)) note(path + " is unexpected");
    if (problems_ == 0) return;
    if (problems_ > max_listed_problems) list_ += strfmt("; and %d more", problems_ - max_listed_problems);
    throw Error(ExitCode::data, "the checkpoint is not of this model: " + list_, {},
                "Use the config.json that the checkpoint was saved with");
  }
  [[nodiscard]] const Location& at(std::size_t vector, int param) const {
    return locations_[vector * num_params_ + static_cast<std::size_t>(param)];
  }

 private:
  static constexpr int max_listed_problems = 10;
  void note(const std::string& what) {
    if (++problems_ <= max_listed_problems) list_ += (problems_ == 1 ? "" : "; ") + what;
  }
  void find(const ParamSpec& p, const StoredVector& vector, std::map<std::string, Location>& by_path, Location& out) {
    const auto found = by_path.find(vector.group + p.name);
    if (found == by_path.end()) {
      if ((vector.optimizer || left_out_) && frozen_.contains(p.name)) return;
      return note("E112 " + vector.group + p.name + " is missing");
    }
    out = found->second;
    by_path.erase(found);
    const std::vector<std::int64_t> expected = shape_in_file(p, vector.values);
    const bool bytes = out.dataset->dtype == DType::u8;  // of a quantized matrix
    if (!vector.optimizer && bytes != static_cast<bool>(p.quantized))
      note("E122 " + out.dataset->path +
           (bytes ? " is quantized, and the model's is not" : " is not quantized, and the model's is"));
    else if (out.dataset->shape != expected)
      note("E113 " + out.dataset->path + " is " + text_of(out.dataset->shape) + ", the model's is " +
           text_of(expected));
    else if (vector.optimizer ? out.dataset->dtype != vector.values.dtype : !bytes && !convertible(out.dataset->dtype))
      note("E122 " + out.dataset->path + " is " + name_of(out.dataset->dtype) + ", not " +
           name_of(vector.values.dtype));
  }
  static bool convertible(DType dtype) { return dtype == DType::f32 || dtype == DType::bf16 || dtype == DType::f16; }
  static std::string text_of(const std::vector<std::int64_t>& shape) {
    std::string text;
    for (const std::int64_t n : shape) text += (text.empty() ? "" : ", ") + std::to_string(n);
    return "[" + text + "]";
  }

  std::size_t num_params_;
  std::vector<Location> locations_;
  std::set<std::string> frozen_;
  bool left_out_;
  int problems_ = 0;
  std::string list_;
};

}  // namespace

std::vector<StateRange> state_ranges(std::span<const ParamSpec> params, const shard::ShardLayout& layout,
                                     const TrainingState& state, const std::vector<StateFile>& files,
                                     const FrozenInFiles& frozen, std::optional<int> saver) {
  const std::vector<StoredVector> vectors = vectors_of(state.states);
  const Locations locations(params, files, vectors, frozen);
  std::vector<StateRange> ranges;
  for (const StateView& view : state.shards) {
    const std::int64_t begin = view.shard * layout.shard_numel(view.unit);
    for (const auto& s : saver ? shard::replica_segments(layout, view.unit, *saver)
                               : layout.whole_segments(view.unit, view.shard, view.part))
      for (std::size_t v = 0; v < vectors.size() && vectors[v].has(params[static_cast<std::size_t>(s.param)]); ++v) {
        const Location& location = locations.at(v, s.param);
        if (location.dataset == nullptr) continue;
        StateSpec stored = vectors[v].values, held = stored;
        stored.dtype = location.dataset->dtype;
        held.dtype = view.data[v].dtype;
        ranges.push_back({location.file, location.dataset->offset + stored.bytes(s.param_offset),
                          stored.bytes(s.length),
                          static_cast<std::byte*>(view.data[v].data) + held.bytes(s.unit_offset - begin), view.unit,
                          view.data[v].device, stored.dtype, held.dtype});
      }
  }
  std::ranges::sort(ranges, [](const StateRange& a, const StateRange& b) {
    return std::tie(a.file, a.offset) < std::tie(b.file, b.offset);
  });
  return ranges;
}

}  // namespace tessera::io
