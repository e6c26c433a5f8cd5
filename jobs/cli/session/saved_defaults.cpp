// SPDX-License-Identifier: Apache-2.0
#include "jobs/cli/session/saved_defaults.hpp"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

#include "io/checkpoint/checkpoint.hpp"
#include "io/file/file.hpp"
#include "io/file/text_file.hpp"
#include "jobs/cli/session/model_tensors.hpp"

namespace tessera::jobs {

namespace {

using Json = nlohmann::json;
constexpr const char* checkpointing = "gradient_checkpointing";
constexpr std::uint64_t max_args_bytes = 16U << 20;

std::string text_at(const Json& json, const char* key) {
  return json.is_object() && json.contains(key) && json.at(key).is_string() ? json.at(key).get<std::string>() : "";
}

Json parsed_json(const std::string& text) { return Json::parse(text, nullptr, /*allow_exceptions=*/false); }

}  // namespace

SavedDefaults saved_defaults(const io::Manifest& manifest, const std::string& args_json) {
  const Json run = parsed_json(manifest.run_metadata), args = parsed_json(args_json);
  SavedDefaults saved{parse_dtype(text_at(run, "compute_dtype")).value_or(DType::f32), text_at(run, checkpointing)};
  if (saved.gradient_checkpointing.empty() && args.is_object() && args.contains(checkpointing))
    saved.gradient_checkpointing = text_at(args.at(checkpointing), "value");
  constexpr std::array forms = {"keep_all", "none", "selective", "full", "auto"};
  if (std::ranges::find(forms, saved.gradient_checkpointing) == forms.end()) saved.gradient_checkpointing.clear();
  return saved;
}

std::optional<SavedDefaults> saved_defaults(World& world, const std::vector<Candidate>& candidates) {
  if (candidates.empty()) return std::nullopt;
  const std::string text = world.text_of_rank_0([&] {
    const std::string& checkpoint = candidates.front().checkpoint;
    const std::string args = io::directory_of(checkpoint) + "/args.json";
    const SavedDefaults saved = saved_defaults(io::read_manifest(checkpoint),
                                               io::exists(args) ? io::read_text(args, max_args_bytes) : std::string());
    return std::string(name_of(saved.compute)) + " " + saved.gradient_checkpointing;
  });
  const std::size_t blank = text.find(' ');
  return SavedDefaults{parse_dtype(text.substr(0, blank)).value(), text.substr(blank + 1)};
}

std::optional<SavedDefaults> saved_defaults(const Options& options) {
  std::optional<SavedDefaults> saved;
  if (options.has("resume_from_checkpoint"))
    run_local(1, [&](World& world) { saved = saved_defaults(world, resume_candidates(world, options)); });
  return saved;
}

void keep_saved_checkpointing(Options& options, const std::optional<SavedDefaults>& saved) {
  if (saved && !saved->gradient_checkpointing.empty() && !options.given("gradient_checkpointing"))
    options.decide("gradient_checkpointing", saved->gradient_checkpointing, "as the checkpoint's run");
}

}  // namespace tessera::jobs
