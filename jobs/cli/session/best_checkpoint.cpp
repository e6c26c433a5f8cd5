// SPDX-License-Identifier: Apache-2.0
#include "jobs/cli/session/best_checkpoint.hpp"

#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>

namespace tessera::jobs {

using Json = nlohmann::ordered_json;

std::optional<BestMetric> best_metric(const Options& options) {
  const bool named = options.has("metric_for_best_model");
  if (!named && !options.flag("load_best_model_at_end")) return std::nullopt;
  std::string name = named ? options.text("metric_for_best_model") : "loss";
  if (!name.starts_with("eval_")) name = "eval_" + name;
  const bool falls = name.ends_with("loss") || name.ends_with("ppl");
  return BestMetric{name, options.has("greater_is_better") ? options.flag("greater_is_better") : !falls};
}

namespace {

Error no_checkpoint(const Options& options, const std::string& what, const char* to_do) {
  return options.refuse("load_best_model_at_end",
                        "--load_best_model_at_end needs a checkpoint at every evaluation that counts: " + what, to_do);
}

}  // namespace

void check_best_options(const Options& options) {
  if (options.given("greater_is_better") && !best_metric(options))
    throw options.refuse("greater_is_better", "--greater_is_better has no effect without a metric",
                         "Add --metric_for_best_model");
  if (!options.flag("load_best_model_at_end")) return;
  const auto refuse = [&](const std::string& what, const char* to_do) { return no_checkpoint(options, what, to_do); };
  const std::string saves = options.text("save_strategy"), evaluates = options.text("eval_strategy");
  if (saves != evaluates)
    throw refuse("--save_strategy is " + saves + " and --eval_strategy " + evaluates,
                 "Give both the same value, steps or epoch");
  if (saves == "no") throw refuse("--save_strategy is no", "Give --save_strategy and --eval_strategy steps or epoch");
  if (saves == "epoch") return;
  const auto is_off = [&](const char* name) { return !options.is_share(name) && options.integer(name) == 0; };
  if (is_off("save_steps") || is_off("eval_steps"))
    throw refuse(is_off("save_steps") ? "--save_steps is 0" : "--eval_steps is 0",
                 "Give --eval_steps N, and --save_steps a multiple of N");
  if (options.is_share("save_steps") != options.is_share("eval_steps"))
    throw refuse("--save_steps is " + options.text("save_steps") + " and --eval_steps " + options.text("eval_steps") +
                     ": one is a share of all steps, the other a number",
                 "Give two numbers, or two shares");
  if (!options.is_share("save_steps")) check_best_steps(options, 0);
}

void check_best_steps(const Options& options, std::int64_t total_steps) {
  if (!options.flag("load_best_model_at_end") || options.text("save_strategy") != "steps") return;
  const std::int64_t saves = options.steps("save_steps", total_steps), evals = options.steps("eval_steps", total_steps);
  if (evals == 0 || saves % evals == 0) return;  // check_best_options refuses 0
  const auto text = [&](const char* name, std::int64_t steps) {
    const std::string share =
        options.is_share(name) ? options.text(name) + strfmt(" (of %ld steps) ", total_steps) : "";
    return strfmt("--%s ", name) + share + std::to_string(steps);
  };
  throw no_checkpoint(options, text("save_steps", saves) + " is no multiple of " + text("eval_steps", evals),
                      "Make --save_steps a multiple of --eval_steps");
}

bool is_better(const BestMetric& metric, double value, const std::optional<BestCheckpoint>& best) {
  if (std::isnan(value)) return false;
  return !best || (metric.greater_is_better ? value > best->value : value < best->value);
}

Json to_json(const BestCheckpoint& best) {
  Json json = {
      {"metric", best.metric.name}, {"greater_is_better", best.metric.greater_is_better}, {"value", best.value}};
  if (!best.validation.empty()) json["validation_crc32c"] = best.validation;
  json["global_step"] = best.step;
  return json;
}

BestCheckpoint best_from_json(const Json& json, const std::string& source) {
  const auto is = [&](const char* key, auto kind) { return json.contains(key) && (json.at(key).*kind)(); };
  if (!json.is_object() || !is("metric", &Json::is_string) || !is("greater_is_better", &Json::is_boolean) ||
      !is("value", &Json::is_number) || !is("global_step", &Json::is_number_integer) ||
      (json.contains("validation_crc32c") && !is("validation_crc32c", &Json::is_string)))
    throw Error(ExitCode::data, source + " has a malformed record of the best checkpoint (\"training\".best)", {},
                "Start a new run from it with --model");
  return {{json.at("metric").get<std::string>(), json.at("greater_is_better").get<bool>()},
          json.at("value").get<double>(),
          json.at("global_step").get<std::int64_t>(),
          {},
          json.value("validation_crc32c", "")};
}

std::string with_best(const std::string& training, const BestCheckpoint& best) {
  const Json before = Json::parse(training);
  Json after = Json::object();
  for (const auto& [key, value] : before.items()) {
    if (key == "best") continue;
    if (key == "updated_samples" || key == "seed") after["best"] = to_json(best);  // it stays at the first of these
    after[key] = value;
  }
  after["best"] = to_json(best);
  return after.dump();
}

std::string with_best_path(const std::string& run_metadata, const std::string& path) {
  Json json = Json::parse(run_metadata);
  json["best_model_checkpoint"] = std::filesystem::absolute(path).lexically_normal().string();
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace tessera::jobs
