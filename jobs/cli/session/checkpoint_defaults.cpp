// SPDX-License-Identifier: Apache-2.0
// Sets options to a checkpoint's values.
#include "jobs/cli/session/checkpoint_defaults.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <span>

#include "io/checkpoint/checkpoint.hpp"
#include "io/checkpoint/directory.hpp"
#include "jobs/cli/session/resume.hpp"
#include "jobs/cli/session/schedule_state.hpp"
#include "jobs/cli/session/setup.hpp"

namespace tessera::jobs {

namespace {

using DefaultsJson = nlohmann::ordered_json;

constexpr const char* kept_from = "checkpoint ";  // begins the source of such a value
constexpr const char* batch_names[] = {"global_batch_size", "per_device_train_batch_size",
                                       "gradient_accumulation_steps"};
constexpr const char* precision_names[] = {"mixed_precision", "bf16", "fp16"};

bool none_given(const Options& options, std::span<const char* const> names) {
  return std::ranges::none_of(names, [&](const char* name) { return options.given(name); });
}

bool is_kept(const Options& options, const char* name) {
  return options.value(name).source.text.starts_with(kept_from);
}

/// What rank 0 finds, for the others.
std::string found_defaults(const Options& options) {
  try {
    const std::vector<Candidate> candidates = local_candidates(options);
    if (candidates.empty()) return "{}";
    const std::string& directory = candidates.front().checkpoint;
    const CheckpointDefaults defaults = checkpoint_defaults(io::read_manifest(directory), directory);
    return DefaultsJson{{"directory", directory},
                        {"global_batch", defaults.global_batch.value_or(0)},
                        {"compute_dtype", defaults.compute_dtype}}
        .dump(-1, ' ', false, DefaultsJson::error_handler_t::replace);
  } catch (const Error& error) {
    if (!io::is_damage(error.line())) throw;  // EIO: it may be readable a moment later
    return "{}";                              // the resume reports it
  }
}

}  // namespace

CheckpointDefaults checkpoint_defaults(const io::Manifest& manifest, const std::string& directory) {
  CheckpointDefaults defaults;
  if (const std::optional<ScheduleState> schedule = read_schedule(manifest, directory))
    defaults.global_batch = schedule->global_batch;
  const DefaultsJson metadata = DefaultsJson::parse(manifest.run_metadata, nullptr, /*allow_exceptions=*/false);
  if (!metadata.is_object() || !metadata.contains("compute_dtype") || !metadata.at("compute_dtype").is_string())
    return defaults;
  const std::string dtype = metadata.at("compute_dtype").get<std::string>();
  if (dtype == "fp32" || dtype == "bf16" || dtype == "fp16") defaults.compute_dtype = dtype;
  return defaults;
}

void keep_checkpoint_defaults(Options& options, const CheckpointDefaults& defaults, const std::string& directory,
                              int world) {
  const Source source{precedence::preset, kept_from + directory};
  if (defaults.global_batch && none_given(options, batch_names)) {
    const std::int64_t micro = batch_of(options, world).micro_batch, global = *defaults.global_batch;
    options.assign("global_batch_size", {std::to_string(global)}, source);
    options.assign("per_device_train_batch_size", {std::to_string(std::min(micro, (global + world - 1) / world))},
                   source);
    std::erase_if(options.stage_defaults, [](const std::string& chosen) {
      return std::ranges::any_of(batch_names, [&](const char* name) { return chosen.starts_with(name); });
    });
  }
  if (!defaults.compute_dtype.empty() && none_given(options, precision_names))
    options.assign("mixed_precision", {defaults.compute_dtype}, source);
}

Options with_checkpoint_defaults(const Options& options, World& world) {
  Options kept = options;
  if (!options.has("resume_from_checkpoint")) return kept;
  const DefaultsJson found = DefaultsJson::parse(world.text_of_rank_0([&] { return found_defaults(options); }));
  if (found.empty()) return kept;
  CheckpointDefaults defaults{.global_batch = found.at("global_batch").get<std::int64_t>(),
                              .compute_dtype = found.at("compute_dtype").get<std::string>()};
  if (defaults.global_batch == 0) defaults.global_batch.reset();
  keep_checkpoint_defaults(kept, defaults, found.at("directory").get<std::string>(), world.size());
  return kept;
}

std::string kept_defaults(const Options& options, const plan::BatchPlan& batch) {
  std::string text;
  if (is_kept(options, "global_batch_size"))
    text = strfmt("global_batch_size %ld (micro-batch %ld x accumulation %d on %d rank%s)", batch.global_batch,
                  batch.micro_batch, batch.accumulation, batch.world, batch.world == 1 ? "" : "s");
  if (is_kept(options, "mixed_precision"))
    text += (text.empty() ? "" : ", ") + ("mixed_precision " + options.text("mixed_precision"));
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
  require("mixed_precision", none_given(options, precision_names), loaded.compute_dtype, now.compute_dtype);
}

}  // namespace tessera::jobs
