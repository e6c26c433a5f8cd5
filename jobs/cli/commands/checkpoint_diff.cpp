// SPDX-License-Identifier: Apache-2.0
// `tessera checkpoint diff A B`: which tensors differ, and by how much.
#include <algorithm>
#include <cstdlib>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>

#include "io/checkpoint/checkpoint.hpp"
#include "io/inspect/tensor_stats.hpp"
#include "jobs/cli/commands/checkpoint.hpp"
#include "runtime/base/log.hpp"

namespace tessera::jobs {

namespace {

using Json = nlohmann::ordered_json;

struct Operand {
  io::LocatedPath located;
  io::Manifest manifest;  // of a checkpoint
  io::TensorCatalog stored;
  [[nodiscard]] bool is_checkpoint() const { return located.kind == io::PathKind::checkpoint; }
};

void open(World& world, const std::string& path, Operand& side) {
  side.located = locate(world, path);
  if (side.is_checkpoint()) {
    const io::CheckpointReader reader(world, side.located.path);
    side.manifest = reader.manifest();
    side.stored = io::catalog_checkpoint(side.located.path, side.manifest);
    return;
  }
  if (side.located.kind == io::PathKind::tokens || side.located.kind == io::PathKind::hdf5)
    throw Error(ExitCode::data, path + " is " + io::name_of(side.located.kind), {},
                "Compare checkpoints and models in safetensors");
  world.run_and_agree([&] { side.stored = io::catalog_safetensors(side.located.path); });
}

/// The tensors of both operands by the name they are compared under. If one of them is a model, only the model of the
/// other is compared, by parameter names.
struct Pairs {
  std::vector<std::pair<std::string, std::pair<const io::TensorEntry*, const io::TensorEntry*>>> both;
  std::vector<std::string> only_a, only_b;
};

Pairs pair_up(const Operand& a, const Operand& b, const std::optional<std::regex>& grep) {
  static const std::string group = "/model/";
  const bool names_alone = !(a.is_checkpoint() && b.is_checkpoint());
  std::map<std::string, std::pair<const io::TensorEntry*, const io::TensorEntry*>> all;
  const auto add = [&](const Operand& side, auto member) {
    for (const io::TensorEntry& t : side.stored.tensors) {
      const bool in_model = t.name.starts_with(group);
      if (names_alone && side.is_checkpoint() && !in_model) continue;
      const std::string name = names_alone && side.is_checkpoint() ? t.name.substr(group.size()) : t.name;
      if (!grep || std::regex_search(name, *grep)) all[name].*member = &t;
    }
  };
  using Pair = std::pair<const io::TensorEntry*, const io::TensorEntry*>;
  add(a, &Pair::first);
  add(b, &Pair::second);
  Pairs pairs;
  for (const auto& [name, pair] : all) {
    if (pair.second == nullptr) pairs.only_a.push_back(name);
    else if (pair.first == nullptr) pairs.only_b.push_back(name);
    else pairs.both.emplace_back(name, pair);
  }
  return pairs;
}

bool comparable(const io::TensorEntry& a, const io::TensorEntry& b) {
  return a.shape == b.shape && io::is_numeric(a) && io::is_numeric(b);
}

/// Collective: each rank compares the same number of elements; rank 0 joins the results and broadcasts them.
std::vector<io::TensorDifference> compare_all(World& world, const Operand& a, const Operand& b, const Pairs& pairs) {
  std::int64_t total = 0;
  for (const auto& [name, pair] : pairs.both) total += comparable(*pair.first, *pair.second) ? pair.first->numel() : 0;
  const auto split = [&](int rank) {
    return static_cast<std::int64_t>(static_cast<__int128>(total) * rank / world.size());
  };
  const std::int64_t first = split(world.rank()), last = split(world.rank() + 1);
  std::ostringstream mine;
  mine << std::hexfloat;
  world.run_and_agree([&] {
    io::BlockCache cache_a(a.stored.files, 4), cache_b(b.stored.files, 4);
    std::int64_t at = 0;
    for (std::size_t i = 0; i < pairs.both.size(); ++i) {
      const auto& [x, y] = pairs.both[i].second;
      if (!comparable(*x, *y)) continue;
      const std::int64_t from = std::max(first, at), to = std::min(last, at + x->numel());
      if (from < to) {
        const io::TensorDifference d = io::compare(*x, cache_a, *y, cache_b, from - at, to - from);
        if (d.elements > 0)
          mine << i << ' ' << d.elements << ' ' << d.one_not_finite << ' ' << d.max_absolute << ' ' << d.max_relative
               << '\n';
      }
      at += x->numel();
    }
  });
  std::string joined;
  for (const std::string& text : world.gather(mine.str())) joined += text;
  joined = world.broadcast(joined);
  std::vector<io::TensorDifference> differences(pairs.both.size());
  std::istringstream lines(joined);
  for (std::string index, elements, unlike, absolute, relative;
       lines >> index >> elements >> unlike >> absolute >> relative;) {
    io::TensorDifference part;
    part.elements = std::stoll(elements);
    part.one_not_finite = std::stoll(unlike);
    part.max_absolute = std::strtod(absolute.c_str(), nullptr);
    part.max_relative = std::strtod(relative.c_str(), nullptr);
    differences[std::stoul(index)].join(part);
  }
  return differences;
}

/// Differences of two manifests other than tensors and run metadata.
std::vector<std::string> other_differences(const Operand& a, const Operand& b) {
  std::vector<std::string> lines;
  if (!a.is_checkpoint() || !b.is_checkpoint()) return lines;
  if (a.manifest.step != b.manifest.step) lines.push_back(strfmt("step: %ld, %ld", a.manifest.step, b.manifest.step));
  const Json x = Json::parse(a.manifest.training), y = Json::parse(b.manifest.training);
  std::map<std::string, std::pair<std::string, std::string>> values;
  for (const auto& [key, value] : x.items()) values[key].first = value.dump();
  for (const auto& [key, value] : y.items()) values[key].second = value.dump();
  for (const auto& [key, both] : values)
    if (both.first != both.second)
      lines.push_back("training " + key + ": " + (both.first.empty() ? "-" : both.first) + ", " +
                      (both.second.empty() ? "-" : both.second));
  std::map<std::string, std::pair<std::int64_t, std::int64_t>> crcs;
  for (const auto& t : a.manifest.auxiliary_files) crcs.try_emplace(t.name, -1, -1).first->second.first = t.crc;
  for (const auto& t : b.manifest.auxiliary_files) crcs.try_emplace(t.name, -1, -1).first->second.second = t.crc;
  for (const auto& [name, both] : crcs)
    if (both.first != both.second)
      lines.push_back("auxiliary file " + name +
                      (both.first < 0    ? ": only in B"
                       : both.second < 0 ? ": only in A"
                                         : ": differs"));
  return lines;
}

/// The result, for either form of output.
struct Differences {
  std::vector<std::string> lines;
  Json json = Json::object();
  std::int64_t different = 0;  // tensors of both
};

void add_difference(const std::string& name, const io::TensorEntry& x, const io::TensorEntry& y,
                    const io::TensorDifference& d, Differences& result) {
  // Values are compared: a bf16 tensor equals its fp32 conversion.
  const bool same_form = x.shape == y.shape && std::string(x.type) == y.type, compared = comparable(x, y);
  if (compared && d.elements == 0) return;
  ++result.different;
  std::string line = name + ":";
  if (!same_form)
    line += std::string(" ") + x.type + " " + io::shape_text(x.shape) + ", " + y.type + " " + io::shape_text(y.shape);
  if (compared) {
    line += strfmt(" %ld of %ld elements differ, by at most %.6g (relative %.3g)", d.elements, x.numel(),
                   d.max_absolute, d.max_relative);
    if (d.one_not_finite > 0) line += strfmt("; %ld are finite in only one of them", d.one_not_finite);
  } else if (same_form) {
    line += std::string(" ") + x.type + " cannot be compared";
  }
  result.lines.push_back(line);
  result.json["tensors"].push_back({{"name", name},
                                    {"elements", d.elements},
                                    {"of", x.numel()},
                                    {"max_absolute", d.max_absolute},
                                    {"max_relative", d.max_relative},
                                    {"not_finite", d.one_not_finite}});
}

}  // namespace

int diff_command(const Call& call, World& world, const std::vector<std::string>& paths) {
  if (paths.size() != 2)
    throw Error(ExitCode::usage, strfmt("checkpoint diff compares two paths, not %zu", paths.size()), "command line",
                "tessera checkpoint diff A B");
  const std::optional<std::regex> grep = grep_pattern(call.options());
  Operand a, b;
  open(world, paths[0], a);
  open(world, paths[1], b);
  const Pairs pairs = pair_up(a, b, grep);
  const std::vector<io::TensorDifference> differences = compare_all(world, a, b, pairs);

  Differences result{.lines = other_differences(a, b)};
  result.json = {{"a", a.located.path},    {"b", b.located.path},    {"other", result.lines},
                 {"only_a", pairs.only_a}, {"only_b", pairs.only_b}, {"tensors", Json::array()}};
  for (const std::string& name : pairs.only_a) result.lines.push_back(name + ": only in A");
  for (const std::string& name : pairs.only_b) result.lines.push_back(name + ": only in B");
  for (std::size_t i = 0; i < pairs.both.size(); ++i)
    add_difference(pairs.both[i].first, *pairs.both[i].second.first, *pairs.both[i].second.second, differences[i],
                   result);
  const bool equal = result.lines.empty();
  result.json["equal"] = equal;
  if (call.options().flag("json")) {
    log::info(result.json.dump(2, ' ', false, Json::error_handler_t::replace));
  } else {
    for (const std::string& line : result.lines) log::info("differs   " + line);
    log::info(
        equal ? strfmt("equal     %zu tensor%s, every element", pairs.both.size(), pairs.both.size() == 1 ? "" : "s")
              : strfmt("different %ld of the %zu tensors in both", result.different, pairs.both.size()));
  }
  return static_cast<int>(equal ? ExitCode::ok : ExitCode::data);
}

}  // namespace tessera::jobs
