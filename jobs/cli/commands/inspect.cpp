// SPDX-License-Identifier: Apache-2.0
// `tessera inspect`: the contents of a checkpoint, a model directory or a file. One process; reads elements only with
// --stats.
#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "io/checkpoint/checkpoint.hpp"
#include "io/data/token_file.hpp"
#include "io/file/text_file.hpp"
#include "io/inspect/sandbox.hpp"
#include "io/inspect/tensor_stats.hpp"
#include "io/model/safetensors_index.hpp"
#include "jobs/cli/commands/checkpoint.hpp"
#include "jobs/cli/session/run_directory.hpp"
#include "runtime/base/log.hpp"

namespace tessera::jobs {

namespace {

using Json = nlohmann::ordered_json;

struct InspectRequest {
  bool stats = false, json = false;
  std::optional<std::regex> grep;
};

/// The findings about one path, for either form of output.
struct Findings {
  std::vector<std::pair<std::string, std::string>> lines;  // title, text
  Json json = Json::object();
  io::TensorCatalog stored;
};

/// "ranks 4 | mesh {replicate 1, shard 4}" of an object; without lists and what is empty.
std::string text_of(const Json& object, const char* between = " | ") {
  std::string text;
  for (const auto& [key, value] : object.items()) {
    if (value.is_array() || value.empty() || value == "") continue;
    text += (text.empty() ? "" : between) + (key == "world" ? "ranks" : key) + " ";
    text += value.is_object()   ? "{" + text_of(value, ", ") + "}"
            : value.is_string() ? value.get<std::string>()
                                : value.dump();
  }
  return text.empty() ? "-" : text;
}

/// Splits a manifest's run metadata into the placement of the ranks and the rest.
std::pair<Json, Json> split_run_metadata(const Json& run_metadata) {
  std::pair<Json, Json> parts{Json::object(), Json::object()};
  for (const auto& [key, value] : run_metadata.items()) {
    const bool placement = key == "world" || key == "nodes" || key == "transport" || key == "strategy" ||
                           key == "mesh" || key == "threads_per_rank";
    (placement ? parts.first : parts.second)[key] = value;
  }
  return parts;
}

/// "2 parameters (wte.weight, wpe.weight)", if there are any.
std::string frozen_text(const io::Manifest& manifest) {
  std::string text = strfmt("%zu parameter%s (", manifest.frozen.size(), manifest.frozen.size() == 1 ? "" : "s");
  for (std::size_t i = 0; i < manifest.frozen.size() && i < 3; ++i) text += (i > 0 ? ", " : "") + manifest.frozen[i];
  text += manifest.frozen.size() > 3 ? ", ...)" : ")";
  return text + (manifest.base ? ", left out: those of the base model" : "");
}

void describe_checkpoint(const std::string& directory, Findings& findings) {
  const std::string path = directory + "/" + io::manifest_name;
  std::string problem;
  io::Manifest manifest;
  try {
    manifest = io::read_manifest(directory);
  } catch (const Error& error) {  // a complete manifest can be shown all the same
    problem = error.line();
    std::string text;
    try {
      text = io::read_text(path, std::size_t{256} << 20);
    } catch (const Error&) { throw error; }
    manifest = io::parse_manifest(text, path);
  }
  const Json training = Json::parse(manifest.training), run_metadata = Json::parse(manifest.run_metadata);
  std::uint64_t bytes = 0;
  for (const auto& f : manifest.files) bytes += f.bytes;
  const auto [placement, rest] = split_run_metadata(run_metadata);
  std::string auxiliary_files;
  for (const auto& a : manifest.auxiliary_files) auxiliary_files += (auxiliary_files.empty() ? "" : ", ") + a.name;
  std::string states;
  for (const std::string& name : io::state_names(manifest.files)) states += (states.empty() ? "" : ", ") + name;
  findings.lines = {
      {"step", std::to_string(manifest.step)},
      {"contains", manifest.optimizer ? "model and optimizer state (" + states + ")" : "the model alone"},
      {"files", strfmt("%zu, %s", manifest.files.size(), human_bytes(bytes).c_str())},
      {"complete", problem.empty() ? "yes, by file sizes (checkpoint verify reads every byte)" : "NO: " + problem},
      {"saved on", text_of(placement)},
      {"saved by", text_of(rest)},
      {"training", text_of(training)},
      {"also", auxiliary_files.empty() ? "-" : auxiliary_files}};
  if (!manifest.frozen.empty()) findings.lines.insert(findings.lines.begin() + 2, {"frozen", frozen_text(manifest)});
  findings.json["step"] = manifest.step;
  findings.json["optimizer"] = manifest.optimizer;
  findings.json["optimizer_states"] = io::state_names(manifest.files);
  if (!manifest.frozen.empty()) findings.json["frozen"] = manifest.frozen;
  if (manifest.base) findings.json["frozen_left_out"] = true;
  findings.json["whole"] = problem.empty();
  if (!problem.empty()) findings.json["problem"] = problem;
  findings.json["saved_by"] = run_metadata;
  findings.json["training"] = training;
  for (const auto& f : manifest.files) findings.json["files"].push_back({{"name", f.name}, {"bytes", f.bytes}});
  for (const auto& a : manifest.auxiliary_files) findings.json["attachments"].push_back(a.name);
  findings.stored = io::catalog_checkpoint(directory, manifest);
}

void describe_safetensors(const std::string& path, Findings& findings) {
  findings.stored = io::catalog_safetensors(path);
  std::vector<std::string> metadata;
  for (const io::CatalogFile& file : findings.stored.files) {
    findings.json["files"].push_back({{"name", file.path}, {"bytes", file.state.bytes}});
    const io::SafetensorsFile opened(file.path);
    for (const auto& [key, value] : opened.metadata()) {
      const std::string entry = io::quote_name(key) + ": " + io::quote_name(value);
      if (std::ranges::find(metadata, entry) == metadata.end()) metadata.push_back(entry);  // shards repeat it
    }
    if (findings.stored.files.size() == 1) findings.json["metadata"] = opened.metadata();
  }
  std::string text;
  for (const std::string& entry : metadata) text += (text.empty() ? "" : ", ") + entry;
  findings.lines = {{"files", std::to_string(findings.stored.files.size())}, {"metadata", text.empty() ? "-" : text}};
}

void describe_hdf5(const std::string& path, Findings& findings) {
  const io::Hdf5Contents catalog = io::read_hdf5_sandboxed(path);
  for (const auto& a : catalog.attributes) {
    findings.lines.emplace_back(a.name, a.text.empty() ? std::to_string(a.number) : a.text);
    findings.json["attributes"][a.name] = a.text.empty() ? Json(a.number) : Json(a.text);
  }
  findings.stored = io::catalog_hdf5(path, catalog.datasets);
}

void describe_tokens(const std::string& path, const InspectRequest& request, Findings& findings) {
  const io::MappedFile file(path);
  const io::TokenFileLayout layout = io::open_token_file(file.bytes(), path);
  findings.lines = {{"tokens", std::to_string(layout.count)}, {"width", strfmt("%d bytes", io::width_of(layout.type))}};
  findings.json["tokens"] = layout.count;
  findings.json["width"] = io::width_of(layout.type);
  if (!request.stats) return;
  const std::int32_t largest = io::largest_token(layout, path);
  findings.lines.emplace_back("largest", std::to_string(largest));
  findings.json["largest"] = largest;
}

Json json_of(const io::TensorStats& s) {
  const auto number = [&](double v) { return s.finite() > 0 && std::isfinite(v) ? Json(v) : Json(nullptr); };
  return {{"min", number(s.min)},
          {"max", number(s.max)},
          {"mean", number(s.mean())},
          {"nan", s.nans},
          {"inf", s.infinities}};
}

std::string text_of(const io::TensorStats& s) {
  const std::string odd =
      (s.nans > 0 ? strfmt("  %ld NaN", s.nans) : "") + (s.infinities > 0 ? strfmt("  %ld Inf", s.infinities) : "");
  if (s.finite() == 0) return "  no finite element" + odd;
  return strfmt("  min %-12.6g max %-12.6g mean %-12.6g", s.min, s.max, s.mean()) + odd;
}

/// Lists the tensors and their totals.
void list_tensors(const InspectRequest& request, Findings& findings) {
  io::BlockCache cache(findings.stored.files, 4);
  std::size_t width = 4;
  const auto wanted = [&](const io::TensorEntry& t) {
    return !request.grep || std::regex_search(t.name, *request.grep);
  };
  for (const io::TensorEntry& t : findings.stored.tensors)
    if (wanted(t)) width = std::max(width, std::min<std::size_t>(t.name.size(), 64));
  std::int64_t count = 0, elements = 0;
  std::uint64_t bytes = 0;
  for (const io::TensorEntry& t : findings.stored.tensors) {
    if (!wanted(t)) continue;
    ++count;
    elements += t.numel();
    bytes += t.bytes;
    const std::string name = io::quote_name(t.name);
    std::string line = strfmt("  %-*s  %-7s %12s  ", static_cast<int>(width), name.substr(1, name.size() - 2).c_str(),
                              t.type, human_bytes(t.bytes).c_str()) +
                       io::shape_text(t.shape);
    Json entry = {{"name", t.name}, {"dtype", t.type}, {"shape", t.shape}, {"bytes", t.bytes}};
    if (request.stats && io::is_numeric(t)) {
      const io::TensorStats stats = io::compute_stats(t, cache, 0, t.numel());
      line += text_of(stats);
      entry["stats"] = json_of(stats);
    }
    if (request.json) findings.json["tensors"].push_back(std::move(entry));
    else log::info(line);
  }
  findings.json["total"] = {{"tensors", count}, {"elements", elements}, {"bytes", bytes}};
  if (!request.json)
    log::info(strfmt("total      %ld tensor%s | %ld element%s | %s", count, count == 1 ? "" : "s", elements,
                     elements == 1 ? "" : "s", human_bytes(bytes).c_str()));
}

void inspect(const std::string& path, const InspectRequest& request) {
  const io::LocatedPath located = io::recognize(path);
  Findings findings;
  findings.json["path"] = located.path;
  findings.json["kind"] = io::name_of(located.kind);
  const bool tokens = located.kind == io::PathKind::tokens;
  if (located.kind == io::PathKind::checkpoint) describe_checkpoint(located.path, findings);
  else if (located.kind == io::PathKind::hdf5) describe_hdf5(located.path, findings);
  else if (tokens) describe_tokens(located.path, request, findings);
  else describe_safetensors(located.path, findings);
  if (!request.json) {
    log::info(located.path + ": " + io::name_of(located.kind));
    for (const auto& [title, text] : findings.lines) log::info(strfmt("%-10s ", title.c_str()) + text);
  }
  if (!tokens) list_tensors(request, findings);
  if (request.json) log::info(findings.json.dump(2, ' ', false, Json::error_handler_t::replace));
}

}  // namespace

void inspect_command(const Call& call) {
  const std::vector<std::string>& paths = call.invocation.operands;
  if (paths.empty())
    throw Error(ExitCode::usage, "inspect needs a path", "command line",
                "tessera inspect PATH [--stats] [--grep REGEX] [--json]");
  const InspectRequest request{call.options().flag("stats"), call.options().flag("json"), grep_pattern(call.options())};
  for (const std::string& path : paths) inspect(path, request);
}

}  // namespace tessera::jobs
