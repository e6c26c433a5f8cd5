// SPDX-License-Identifier: Apache-2.0
// Sets options to a checkpoint's values.
#include "jobs/cli/session/checkpoint_defaults.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <span>

#include "io/checkpoint/checkpoint.hpp"
#include "io/checkpoint/directory.hpp"
#include "io/file/file.hpp"
#include "io/file/text_file.hpp"
#include "jobs/cli/session/precision.hpp"
#include "jobs/cli/session/preferences.hpp"
#include "jobs/cli/session/resume.hpp"
#include "jobs/cli/session/schedule_state.hpp"
#include "jobs/cli/session/setup.hpp"
#include "jobs/cli/session/strategy.hpp"

namespace tessera::jobs {

namespace {

using DefaultsJson = nlohmann::ordered_json;

constexpr const char* batch_names[] = {"global_batch_size", "per_device_train_batch_size",
                                       "gradient_accumulation_steps"};
constexpr const char* checkpointing = "gradient_checkpointing";
constexpr std::uint64_t max_args_bytes = std::uint64_t{16} << 20;

bool none_given(const Options& options, std::span<const char* const> names) {
  return std::ranges::none_of(names, [&](const char* name) { return options.given(name); });
}

bool is_kept(const Options& options, const char* name) {
  const Value& value = options.value(name);
  return value.source.text.starts_with(kept_from) || value.decided.starts_with(kept_from);
}

/// True if no option asks for a precision, or says that it must not be this one. --mixed_precision auto does not, also
/// once it is decided.
bool leaves_precision(const Options& options, const std::string& dtype) {
  const bool is_off =
      (dtype == "bf16" || dtype == "fp16") && options.given(dtype.c_str()) && !options.flag(dtype.c_str());
  return !is_off && (!asked_compute(options) || !options.value("mixed_precision").decided.empty());
}

std::string text_at(const DefaultsJson& json, const char* key) {
  return json.is_object() && json.contains(key) && json.at(key).is_string() ? json.at(key).get<std::string>() : "";
}

DefaultsJson parsed_object(const std::string& text) {
  return DefaultsJson::parse(text, nullptr, /*allow_exceptions=*/false);
}

struct FoundDefaults {
  std::string directory;
  CheckpointDefaults defaults;
};

/// None: the run does not resume, or the checkpoint cannot be read, which the resume reports.
std::optional<FoundDefaults> found_defaults(const Options& options) {
  try {
    if (!options.has("resume_from_checkpoint")) return std::nullopt;
    const std::vector<Candidate> candidates = local_candidates(options);
    if (candidates.empty()) return std::nullopt;
    const std::string& directory = candidates.front().checkpoint;
    const std::string args = io::directory_of(directory) + "/args.json";
    return FoundDefaults{directory, checkpoint_defaults(io::read_manifest(directory), directory,
                                                        io::exists(args) ? io::read_text(args, max_args_bytes) : "")};
  } catch (const Error& error) {
    if (!io::is_damage(error.line())) throw;  // EIO: it may be readable a moment later
    return std::nullopt;
  }
}

}  // namespace

CheckpointDefaults checkpoint_defaults(const io::Manifest& manifest, const std::string& directory,
                                       const std::string& args_json) {
  CheckpointDefaults defaults;
  if (const std::optional<ScheduleState> schedule = read_schedule(manifest, directory))
    defaults.global_batch = schedule->global_batch;
  const DefaultsJson metadata = parsed_object(manifest.run_metadata), args = parsed_object(args_json);
  if (const std::string dtype = text_at(metadata, "compute_dtype"); !dtype.empty())
    defaults.compute_dtype = dtype == "fp32" || dtype == "bf16" || dtype == "fp16" ? dtype : "";
  std::string form = text_at(metadata, checkpointing);
  if (form.empty() && args.is_object() && args.contains(checkpointing)) form = text_at(args.at(checkpointing), "value");
  constexpr std::array forms = {"keep_all", "none", "selective", "full", "auto"};
  if (std::ranges::find(forms, form) != forms.end()) defaults.gradient_checkpointing = form;
  if (const auto settings = metadata.is_object() ? metadata.find("settings") : metadata.end();
      settings != metadata.end() && settings->is_object() && settings->contains(kl_group_setting))
    if (const DefaultsJson& group = settings->at(kl_group_setting); group.is_number_integer())
      if (group.get<std::int64_t>() >= 2) defaults.kl_group = group.get<std::int64_t>();
  return defaults;
}

void keep_checkpoint_defaults(Options& options, const CheckpointDefaults& defaults, const std::string& directory,
                              int world) {
  const Source source{precedence::preset, kept_from + directory};
  if (defaults.global_batch && none_given(options, batch_names)) {
    const plan::BatchPlan batch = batch_of(options, world);
    const std::int64_t global = *defaults.global_batch, each = (global + batch.data_ranks - 1) / batch.data_ranks;
    options.assign("global_batch_size", {std::to_string(global)}, source);
    options.assign("per_device_train_batch_size", {std::to_string(std::min(batch.micro_batch, each))}, source);
    std::erase_if(options.stage_defaults, [](const std::string& chosen) {
      return std::ranges::any_of(batch_names, [&](const char* name) { return chosen.starts_with(name); });
    });
  }
  if (!defaults.compute_dtype.empty() && leaves_precision(options, defaults.compute_dtype))
    options.decide("mixed_precision", defaults.compute_dtype, kept_from + directory);
  if (!defaults.gradient_checkpointing.empty() && !options.given(checkpointing))
    options.assign(checkpointing, {defaults.gradient_checkpointing}, source);
  if (defaults.kl_group && needs_kl(options) && !options.given("kl_group_size"))
    options.assign("kl_group_size", {std::to_string(*defaults.kl_group)}, source);
}

Options with_checkpoint_defaults(const Options& options, World& world) {
  const std::string text = world.text_of_rank_0([&]() -> std::string {
    const std::optional<FoundDefaults> found = found_defaults(options);
    if (!found) return "{}";
    return DefaultsJson{{"directory", found->directory},
                        {"global_batch", found->defaults.global_batch.value_or(0)},
                        {"compute_dtype", found->defaults.compute_dtype},
                        {checkpointing, found->defaults.gradient_checkpointing},
                        {kl_group_setting, found->defaults.kl_group.value_or(0)}}
        .dump(-1, ' ', false, DefaultsJson::error_handler_t::replace);
  });
  Options kept = options;
  const DefaultsJson found = DefaultsJson::parse(text);
  if (found.empty()) return kept;
  CheckpointDefaults defaults{.global_batch = found.at("global_batch").get<std::int64_t>(),
                              .compute_dtype = text_at(found, "compute_dtype"),
                              .gradient_checkpointing = text_at(found, checkpointing)};
  if (defaults.global_batch == 0) defaults.global_batch.reset();
  if (const auto group = found.at(kl_group_setting).get<std::int64_t>(); group > 0) defaults.kl_group = group;
  keep_checkpoint_defaults(kept, defaults, text_at(found, "directory"), world.size());
  return kept;
}

Options with_checkpoint_defaults(const Options& options, int world) {
  Options kept = options;
  if (const std::optional<FoundDefaults> found = found_defaults(options))
    keep_checkpoint_defaults(kept, found->defaults, found->directory, world);
  return kept;
}

std::string kept_defaults(const Options& options, const plan::BatchPlan& batch) {
  std::string text;
  if (is_kept(options, "global_batch_size"))
    text = strfmt("global_batch_size %ld (micro-batch %ld x accumulation %d on %d %s%s)", batch.global_batch,
                  batch.micro_batch, batch.accumulation, batch.data_ranks, row_ranks_of(options) > 1 ? "group" : "rank",
                  batch.data_ranks == 1 ? "" : "s");
  for (const char* name : {"mixed_precision", checkpointing, kl_group_setting})
    if (is_kept(options, name) && options.text(name) != "auto")
      text += (text.empty() ? "" : ", ") + (std::string(name) + " " + options.text(name));
  return text;
}

void require_kept_defaults(const Options& options, const CheckpointDefaults& loaded, const CheckpointDefaults& now,
                           const std::string& directory) {
  const auto require = [&](const char* name, bool none_is_given, const std::string& there,
                           const std::string& this_run) {
    const bool kept = is_kept(options, name);
    const std::string here = kept ? options.text(name) : this_run;
    if (there == here || there.empty() || (!kept && !none_is_given)) return;
    throw options.refuse(name,
                         strfmt("%s was made with --%s %s, and this run has begun with %s, ", directory.c_str(), name,
                                there.c_str(), here.c_str()) +
                             (kept ? "that of a newer checkpoint, which cannot be used"
                                   : "since the checkpoint was not there when the run began"),
                         kept ? strfmt("Give --%s", name) : "Start the run again");
  };
  const auto text = [](const std::optional<std::int64_t>& batch) { return batch ? std::to_string(*batch) : ""; };
  require("global_batch_size", none_given(options, batch_names), text(loaded.global_batch), text(now.global_batch));
  require("mixed_precision", leaves_precision(options, loaded.compute_dtype), loaded.compute_dtype, now.compute_dtype);
}

}  // namespace tessera::jobs
