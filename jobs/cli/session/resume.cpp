// SPDX-License-Identifier: Apache-2.0
#include "jobs/cli/session/resume.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "io/checkpoint/checkpoint.hpp"
#include "io/checkpoint/directory.hpp"
#include "io/file/crc32c.hpp"
#include "jobs/cli/session/data_source.hpp"
#include "runtime/base/log.hpp"

namespace tessera::jobs {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

namespace {
/// "none", or how documents became samples: "binpack", "padded, delete".
std::string samples_word(const RunData& data, const Options& options) {
  if (data.train->packed() == nullptr) return "none";
  const std::string truncation = truncation_word(options, data.train->masked());
  return packing_word(options) + (truncation == "split" ? "" : ", " + truncation);
}

/// Continues a checksum with tokens at the beginning, in the middle and at the end, and with the selected rows.
std::uint32_t crc_of(std::uint32_t crc, const io::TokenStream& tokens) {
  constexpr std::int64_t most = 65536;
  const std::int64_t size = tokens.size(), n = std::min(most, size);
  std::vector<std::int32_t> ids(static_cast<std::size_t>(n));
  for (const std::int64_t first : {std::int64_t{0}, (size - n) / 2, size - n}) {
    tokens.read(first, n, ids.data());
    crc = io::crc32c(crc, std::as_bytes(std::span(ids)));
  }
  if (const std::uint64_t selection = tokens.selection(); selection != 0)
    crc = io::crc32c(crc, std::as_bytes(std::span(&selection, 1)));
  return crc;
}

std::string validation_checksum(const RunData& data, const Options& options) {
  if (data.validation.empty()) return "";
  std::uint32_t crc = 0;
  for (const ValidationSet& set : data.validation) {
    const std::int64_t numbers[] = {set.tokens->size(), set.count.samples, options.integer("eval_max_batches")};
    crc = crc_of(io::crc32c(crc, std::as_bytes(std::span(numbers))), *set.tokens);
  }
  return strfmt("%08x", crc);
}
}  // namespace

DataIdentity identity_of(const RunData& data, const Options& options, std::int64_t max_length) {
  return {data.train->size(),          data.train_count.samples,        max_length,
          data_seed(options),          options.flag("dataset_shuffle"), crc_of(0, *data.train),
          samples_word(data, options), options.flag("group_by_length"), validation_checksum(data, options)};
}

nlohmann::ordered_json optimizer_settings(const train::OptimizerOptions& optimizer) {
  Json json;
  if (optimizer.kind == train::OptimizerKind::sgd) {
    json["momentum"] = optimizer.momentum;
    json["nesterov"] = optimizer.nesterov;
  } else {
    json["adam_beta1"] = optimizer.beta1;
    json["adam_beta2"] = optimizer.beta2;
    json["adam_epsilon"] = optimizer.eps;
  }
  json["weight_decay"] = optimizer.weight_decay;
  return json;
}

std::string training_text(const Progress& progress, const DataIdentity& data, const Options& options) {
  Json json;
  json["global_step"] = progress.step;
  json["samples"] = progress.samples;
  json["tokens"] = progress.tokens;
  if (progress.skipped > 0 || progress.loss_scale) json["skipped_steps"] = progress.skipped;
  if (progress.states_from > 0) json["optimizer_states_from"] = progress.states_from;
  if (progress.loss_scale) {
    json["loss_scale"] = {{"scale", progress.loss_scale->scale},
                          {"good_steps", progress.loss_scale->good_steps},
                          {"overflows_at_least", progress.loss_scale->at_least}};
    if (progress.loss_scale->tolerated > 0) json["loss_scale"]["overflows_tolerated"] = progress.loss_scale->tolerated;
  }
  if (progress.best) json["best"] = to_json(*progress.best);
  if (progress.schedule) {
    json["updated_samples"] = progress.updated_samples;
    json["schedule"] = to_json(*progress.schedule);
  }
  json["seed"] = options.integer("seed");
  json["data"] = {{"tokens", data.tokens}, {"samples", data.samples}, {"max_length", data.max_length},
                  {"seed", data.seed},     {"shuffle", data.shuffle}, {"crc32c", strfmt("%08x", data.crc)}};
  if (data.packing != "none") json["data"]["packing"] = data.packing;
  if (data.by_length) json["data"]["group_by_length"] = true;
  const train::OptimizerOptions optimizer = optimizer_options(options);
  json["optimizer"] = {{"name", train::name_of(optimizer.kind)}};
  json["optimizer"].update(optimizer_settings(optimizer));
  if (!optimizer.param_groups.empty()) json["optimizer"]["param_groups"] = optimizer.param_groups;
  return json.dump();
}

namespace {

/// The manifest's "training" object; empty if it is none.
Json training_of(const io::Manifest& manifest) {
  const Json json = Json::parse(manifest.training, nullptr, /*allow_exceptions=*/false);
  return json.is_object() ? json : Json::object();
}

/// "max_length 64 (now 128)", for each that differs.
std::string data_differences(const std::vector<SettingChange>& changes) {
  std::string list;
  for (const SettingChange& c : changes)
    list += (list.empty() ? "" : ", ") + c.name + " " + c.before + " (now " + c.after + ")";
  return list;
}

/// The loss scale of an fp16 run.
std::optional<train::LossScaleState> read_loss_scale(const Json& json, const std::string& directory) {
  if (!json.contains("loss_scale")) return std::nullopt;
  const Json& kept = json.at("loss_scale");
  const auto count = [&](const char* key, std::int64_t absent) {
    if (!kept.is_object() || !kept.contains(key)) return absent;
    return kept.at(key).is_number_integer() ? kept.at(key).get<std::int64_t>() : -1;
  };
  // Older checkpoints have no "overflows_at_least"; "overflows_tolerated" is left out where it is 0.
  const train::LossScaleState state{
      kept.is_object() && kept.contains("scale") && kept.at("scale").is_number() ? kept.at("scale").get<double>() : 0,
      count("good_steps", -1), count("overflows_at_least", 0), count("overflows_tolerated", 0)};
  int exponent = 0;
  if (!(state.scale > 0) || !std::isfinite(state.scale) || std::frexp(state.scale, &exponent) != 0.5)
    throw Error(ExitCode::data, directory + " has a loss scale that is not a power of two (\"training\".loss_scale)",
                {}, "Start a new run from it with --model");
  if (state.good_steps < 0 || state.at_least < 0 || state.tolerated < 0)
    throw Error(ExitCode::data, directory + " has a malformed count in its loss scale (\"training\".loss_scale)", {},
                "Start a new run from it with --model");
  return state;
}

}  // namespace

bool keeps_updated_samples(const io::Manifest& manifest) { return training_of(manifest).contains("updated_samples"); }

std::vector<SettingChange> changed_data(const io::Manifest& manifest, const DataIdentity& now) {
  const Json training = training_of(manifest);
  const Json then = training.contains("data") ? training.at("data") : Json();
  std::vector<SettingChange> changes;
  const auto compare = [&](const char* name, const char* key, const Json& after) {
    const Json before = then.is_object() && then.contains(key)       ? then.at(key)
                        : std::string_view(key) == "packing"         ? Json("none")
                        : std::string_view(key) == "group_by_length" ? Json(false)
                                                                     : Json("unknown");
    if (before != after) changes.push_back({name, before.dump(), after.dump()});
  };
  compare("max_length", "max_length", now.max_length);
  compare("data seed", "seed", now.seed);
  compare("dataset_shuffle", "shuffle", now.shuffle);
  compare("packing", "packing", now.packing);
  compare("group_by_length", "group_by_length", now.by_length);
  compare("tokens of the data", "tokens", now.tokens);
  compare("samples", "samples", now.samples);
  if (changes.empty()) compare("content of the data, by checksum", "crc32c", strfmt("%08x", now.crc));
  return changes;
}

Progress read_progress(const io::Manifest& manifest, const std::string& directory, const DataIdentity& data,
                       bool ignore_data) {
  const Json json = Json::parse(manifest.training, nullptr, /*allow_exceptions=*/false);
  const auto number = [&](const char* key) {
    if (!json.is_object() || !json.contains(key) || !json.at(key).is_number_integer() ||
        json.at(key).get<std::int64_t>() < 0)
      throw Error(ExitCode::data, directory + " does not say how far training was (\"training\"." + key + ")", {},
                  "It has a model alone: start a new run from it with --model");
    return json.at(key).get<std::int64_t>();
  };
  Progress progress{.step = number("global_step"), .samples = number("samples"), .tokens = number("tokens")};
  if (json.contains("optimizer_states_from")) progress.states_from = number("optimizer_states_from");
  if (json.contains("skipped_steps")) progress.skipped = number("skipped_steps");
  if (progress.skipped > progress.step || progress.states_from > progress.step - progress.skipped)
    throw Error(ExitCode::data, directory + " has more skipped steps or updates than steps", {},
                "It is damaged: resume from another checkpoint");
  progress.loss_scale = read_loss_scale(json, directory);
  if (json.contains("best")) progress.best = best_from_json(json.at("best"), directory);
  progress.updated_samples = keeps_updated_samples(manifest) ? number("updated_samples") : progress.samples;
  progress.schedule = read_schedule(manifest, directory);
  if (progress.schedule && (progress.schedule->from_step > progress.step ||
                            progress.schedule->lr.from_update > progress.step - progress.skipped))
    throw Error(ExitCode::data, directory + " has a schedule that begins after its last step", {},
                "It is damaged: resume from another checkpoint");
  if (ignore_data) {
    progress.samples = 0;
    return progress;
  }
  if (!json.contains("data") || !json.at("data").is_object()) (void)number("data");
  if (const std::string list = data_differences(changed_data(manifest, data)); !list.empty())
    throw Error(ExitCode::usage, "the checkpoint is from the middle of a run on other data: " + list, directory,
                "Give the same data and options, or --ignore_data_skip true to start from the beginning of this data");
  return progress;
}

ResumedRate resume_rate(const ResumeRateArgs& args, Progress& progress) {
  const ResumePoint at{.step = progress.step,
                       .updates = progress.step - progress.skipped,
                       .samples = progress.updated_samples,
                       .global_batch = args.global_batch,
                       .run_steps = args.run_steps,
                       .same_data = args.same_data};
  const std::optional<ScheduleState> then = progress.schedule;
  const ResumedSchedule resumed = resume_schedule(*args.options, then, at);
  progress.schedule = resumed.state;
  ResumedRate rate;
  if (!resumed.warmup_ignored.empty()) rate.warmup_ignored = args.path + ": " + resumed.warmup_ignored;
  if (resumed.continued) return rate;
  const train::LrSchedule& lr = resumed.state.lr;
  rate.lines.push_back(
      "resume    learning rate " + (resumed.rate_before ? strfmt("%.4g", *resumed.rate_before) : "unknown") +
      strfmt(" -> %.4g: the schedule goes on at %g of %g updates (%ld samples of all runs, %ld an update)",
             lr.at(at.updates), lr.position(at.updates), lr.total_steps, at.samples, at.global_batch));
  if (!then) rate.unknown = "its batch, schedule and length";
  else if (!keeps_updated_samples(*args.manifest))
    rate.unknown = "the samples of runs before it with --ignore_data_skip";
  return rate;
}

void require_max_steps(const Options& options, std::int64_t step, const std::string& checkpoint) {
  const std::int64_t last = options.integer("max_steps");
  if (last <= 0 || step <= last) return;
  throw options.refuse("max_steps", strfmt("--max_steps %ld is behind step %ld of %s", last, step, checkpoint.c_str()),
                       strfmt("Give --max_steps %ld, which trains no step, or more; or name an earlier checkpoint with "
                              "--resume_from_checkpoint PATH",
                              step));
}

FoundBest find_best(World& world, const Options& options, const io::Manifest& manifest, const std::string& directory,
                    const BestCheckpoint& best, const std::string& validation) {
  const std::optional<BestMetric> metric = best_metric(options);
  if (!metric) return {};
  const std::string path = world.text_of_rank_0([&] {
    const std::string name = io::checkpoint_name(best.step);
    const Json run = Json::parse(manifest.run_metadata, nullptr, /*allow_exceptions=*/false);
    const std::string recorded = run.is_object() ? run.value("best_model_checkpoint", Json()).dump() : "";
    const std::string beside = (fs::absolute(directory).lexically_normal().parent_path() / name).string();
    for (const std::string& at : {beside, recorded.size() > 2 ? recorded.substr(1, recorded.size() - 2) : ""})
      if (!at.empty() && fs::exists(at + "/" + io::manifest_name)) return at;
    return std::string();
  });
  const bool same = metric->name == best.metric.name && metric->greater_is_better == best.metric.greater_is_better;
  const bool same_data = best.validation.empty() || validation.empty() || best.validation == validation;
  if (!path.empty() && same && same_data) {
    BestCheckpoint found = best;
    found.path = path;
    return {found, ""};
  }
  return {std::nullopt, strfmt("the best checkpoint so far, %s by %s, ", io::checkpoint_name(best.step).c_str(),
                               best.metric.name.c_str()) +
                            (!same        ? "was chosen by another metric than " + metric->name
                             : !same_data ? "was chosen on other validation data"
                                          : "is not beside " + directory) +
                            ": it does not count any more"};
}

void require_states(const io::Manifest& manifest, const std::string& directory, const train::OptimizerOptions& now) {
  if (!manifest.optimizer) return;
  const std::vector<std::string> there = io::state_names(manifest.files);
  std::string missing, list;
  for (const StateSpec& state : train::optimizer_states(now))
    if (std::ranges::find(there, state.name) == there.end()) missing += (missing.empty() ? "" : ", ") + state.name;
  if (missing.empty()) return;
  for (const std::string& name : there) list += (list.empty() ? "" : ", ") + name;
  throw Error(ExitCode::usage,
              strfmt("the checkpoint is of another optimizer: it has %s, and %s needs %s", list.c_str(),
                     train::name_of(now.kind), missing.c_str()),
              directory,
              "Give its --optim, or --resume_only_model true to continue with optimizer states that start at zero");
}

namespace {

/// v<N>-… directories under `base`, newest first, and `base` itself last.
std::vector<std::string> version_directories(const std::string& base) {
  std::vector<std::string> out;
  std::error_code ignored;
  for (auto& [number, path] : io::list_versions(base))
    if (fs::is_directory(fs::symlink_status(path, ignored))) out.push_back(std::move(path));
  out.push_back(base);
  return out;
}

std::vector<Candidate> automatic_candidates(const std::string& base, bool versions) {
  std::vector<Candidate> candidates;
  std::string problems;
  int broken = 0;
  for (const std::string& directory : versions ? version_directories(base) : std::vector<std::string>{base})
    for (const io::FoundCheckpoint& c : io::list_checkpoints(directory)) {
      if (c.problem.empty()) {
        candidates.push_back({c.path, directory});
        continue;
      }
      if (!io::is_damage(c.problem))
        throw Error(ExitCode::data, c.problem, c.path,
                    "An older checkpoint is not taken for it: make it readable, update tessera, or name the one to use "
                    "with --resume_from_checkpoint PATH");
      if (broken++ < 3) problems += "; " + c.problem;
      log::warn(26, c.path + " is incomplete and is skipped: " + c.problem);
    }
  if (candidates.empty() && broken > 0)
    throw Error(ExitCode::data,
                strfmt("no complete checkpoint, but %d incomplete one%s", broken, broken == 1 ? "" : "s") + problems,
                base, "Repair or remove them, or start from the beginning with --resume_from_checkpoint none");
  return candidates;
}

std::vector<Candidate> named_checkpoint(const std::string& path) {
  std::string plain = path;
  while (plain.size() > 1 && plain.back() == '/') plain.pop_back();
  if (fs::exists(plain + "/" + io::manifest_name) || io::checkpoint_step(fs::path(plain).filename().string())) {
    (void)io::read_manifest(plain);
    return {{plain, {}}};
  }
  std::vector<Candidate> found = automatic_candidates(plain, /*versions=*/true);
  if (found.empty())
    throw Error(ExitCode::data, "there is no checkpoint", plain,
                "Name a checkpoint-<step> directory, or a run directory that has one");
  return {{found.front().checkpoint, {}}};
}

}  // namespace

bool resumes_automatically(const Options& options) {
  const std::string word = options.has("resume_from_checkpoint") ? options.text("resume_from_checkpoint") : "";
  return word == "auto" || word == "true" || word == "True";
}

std::vector<Candidate> local_candidates(const Options& options) {
  const std::string word = options.has("resume_from_checkpoint") ? options.text("resume_from_checkpoint") : "none";
  if (word == "none" || word == "false" || word == "no" || word == "0") return {};
  return resumes_automatically(options) ? automatic_candidates(options.text("output_dir"), options.flag("add_version"))
                                        : named_checkpoint(word);
}

std::vector<Candidate> resume_candidates(World& world, const Options& options) {
  const std::string packed = world.text_of_rank_0([&] {
    std::string lines;
    for (const Candidate& c : local_candidates(options)) lines += c.checkpoint + '\n' + c.directory + '\n';
    return lines;
  });
  std::vector<Candidate> candidates;
  for (std::size_t at = 0; at < packed.size();) {
    const std::size_t first = packed.find('\n', at), second = packed.find('\n', first + 1);
    candidates.push_back({packed.substr(at, first - at), packed.substr(first + 1, second - first - 1)});
    at = second + 1;
  }
  return candidates;
}

}  // namespace tessera::jobs
