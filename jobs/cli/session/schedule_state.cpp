// SPDX-License-Identifier: Apache-2.0
// Reads, writes and continues the schedule of a run.
#include "jobs/cli/session/schedule_state.hpp"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "jobs/cli/session/setup.hpp"
#include "runtime/base/error.hpp"

namespace tessera::jobs {

namespace {

using ScheduleKind = train::LrSchedule::Kind;
using ScheduleJson = nlohmann::ordered_json;

constexpr double most_steps = 0x1p53;  // beyond, a double is no count

/// 5 and not 5.0.
ScheduleJson count_json(double value) {
  if (value == std::floor(value) && std::abs(value) < most_steps) return static_cast<std::int64_t>(value);
  return value;
}

ScheduleJson object_in(const std::string& text, const char* key) {
  const ScheduleJson json = ScheduleJson::parse(text, nullptr, /*allow_exceptions=*/false);
  return json.is_object() && json.contains(key) && json.at(key).is_object() ? json.at(key) : ScheduleJson::object();
}

/// Reads the members of a schedule and says which one is wrong.
struct ScheduleReader {
  const ScheduleJson& json;
  const std::string& directory;

  [[nodiscard]] double number(const char* key, double least, double absent) const {
    if (!json.contains(key)) return absent;
    const double value = json.at(key).is_number() ? json.at(key).get<double>() : -1;
    if (value >= least && value < most_steps) return value;
    throw Error(ExitCode::data, directory + " has a schedule whose " + key + " is " + json.at(key).dump(), {},
                "It is damaged: resume from another checkpoint");
  }
  [[nodiscard]] std::int64_t integer(const char* key, std::int64_t least, std::int64_t absent) const {
    return static_cast<std::int64_t>(number(key, static_cast<double>(least), static_cast<double>(absent)));
  }
};

}  // namespace

std::optional<std::int64_t> ScheduleState::run_steps() const {
  if (lr.kind == ScheduleKind::constant) return std::nullopt;
  return from_step + std::llround(lr.total_steps - lr.from_position);
}

const char* name_of(train::LrSchedule::Kind kind) {
  switch (kind) {
    case ScheduleKind::constant: return "constant";
    case ScheduleKind::linear: return "linear";
    case ScheduleKind::cosine: return "cosine";
    case ScheduleKind::cosine_with_min_lr: return "cosine_with_min_lr";
    case ScheduleKind::wsd: return "wsd";
  }
  return "";
}

nlohmann::ordered_json to_json(const train::LrSchedule& lr) {
  ScheduleJson json = {{"learning_rate", lr.learning_rate},
                       {"lr_scheduler_type", name_of(lr.kind)},
                       {"warmup_steps", count_json(lr.warmup_steps)}};
  if (lr.warmup == train::LrSchedule::Warmup::log) json["warmup_type"] = "log";
  if (lr.kind != ScheduleKind::constant) json["total_steps"] = count_json(lr.total_steps);  // what the rate decays over
  if (lr.kind == ScheduleKind::cosine_with_min_lr || lr.kind == ScheduleKind::wsd) json["min_lr"] = lr.min_lr;
  if (lr.kind == ScheduleKind::wsd) json["lr_decay_steps"] = count_json(lr.decay_steps);
  return json;
}

nlohmann::ordered_json to_json(const ScheduleState& state) {
  ScheduleJson json = {{"global_batch_size", state.global_batch}};
  json.update(to_json(state.lr));
  if (state.from_step > 0)
    json.update({{"from_step", state.from_step},
                 {"from_update", state.lr.from_update},
                 {"from_position", count_json(state.lr.from_position)}});
  return json;
}

std::optional<ScheduleState> read_schedule(const io::Manifest& manifest, const std::string& directory) {
  ScheduleJson json = object_in(manifest.training, "schedule");
  if (json.empty()) json = object_in(manifest.run_metadata, "settings");
  for (const char* key : {"global_batch_size", "learning_rate", "lr_scheduler_type", "warmup_steps"})
    if (!json.contains(key)) return std::nullopt;
  const ScheduleReader read{json, directory};
  ScheduleState state;
  try {
    state.lr.kind =
        train::parse_lr_kind(json.at("lr_scheduler_type").is_string() ? json.at("lr_scheduler_type").get<std::string>()
                                                                      : json.at("lr_scheduler_type").dump());
  } catch (const Error& error) {
    throw Error(ExitCode::data, directory + " has a schedule that this program does not know: " + error.line(), {},
                "Resume with the program that wrote it");
  }
  if (state.lr.kind != ScheduleKind::constant && !json.contains("total_steps")) return std::nullopt;
  if (json.contains("warmup_type")) state.lr.warmup = train::LrSchedule::Warmup::log;
  state.lr.learning_rate = read.number("learning_rate", 0, 0);
  state.lr.min_lr = read.number("min_lr", 0, 0);
  state.lr.warmup_steps = read.number("warmup_steps", 0, 0);
  state.lr.total_steps = read.number("total_steps", 0, 1);
  state.lr.decay_steps = read.number("lr_decay_steps", 0, 0);
  state.global_batch = read.integer("global_batch_size", 1, 0);
  state.from_step = read.integer("from_step", 0, 0);
  state.lr.from_update = read.integer("from_update", 0, 0);
  state.lr.from_position = read.number("from_position", 0, 0);
  return state;
}

ResumedSchedule resume_schedule(const Options& options, const std::optional<ScheduleState>& then,
                                const ResumePoint& at) {
  ResumedSchedule resumed;
  resumed.continued = then && then->global_batch == at.global_batch && at.same_data &&
                      then->run_steps().value_or(at.run_steps) == at.run_steps;
  ScheduleState origin;  // from where the schedule counts
  if (resumed.continued) {
    origin = *then;
  } else {
    origin.from_step = at.step;
    origin.lr.from_update = at.updates;
    origin.lr.from_position = static_cast<double>(at.samples) / static_cast<double>(at.global_batch);
  }
  const std::int64_t steps = std::max<std::int64_t>(0, at.run_steps - origin.from_step);
  train::LrSchedule lr = lr_schedule(options, origin.lr.from_position + static_cast<double>(steps));
  lr.from_update = origin.lr.from_update;
  lr.from_position = origin.lr.from_position;
  if (then) {
    resumed.rate_before = then->lr.at(at.updates);
    const double scale = static_cast<double>(then->global_batch) / static_cast<double>(at.global_batch);
    const double position = lr.position(at.updates), asked = lr.warmup_steps;
    const bool given = options.given("warmup_steps") || options.given("warmup_ratio");
    if (then->lr.warmed_up(at.updates)) {
      lr.warmup_steps = std::min(then->lr.warmup_steps * scale, position);
      const bool repeated = asked == then->lr.warmup_steps;
      if (given && asked > 0 && !repeated && (asked > position || then->lr.warmup_steps == 0))
        resumed.warmup_ignored = strfmt(
            "a warm-up of %g steps has no effect: the checkpoint is after the warm-up, which "
            "does not return",
            asked);
    } else if (!given) {
      lr.warmup_steps = then->lr.warmup_steps * scale;
    }
    if (lr.kind == ScheduleKind::wsd && then->lr.kind == ScheduleKind::wsd && !options.given("lr_decay_steps"))
      lr.decay_steps = then->lr.decay_steps * scale;
  }
  resumed.state = {lr, at.global_batch, origin.from_step};
  return resumed;
}

}  // namespace tessera::jobs
