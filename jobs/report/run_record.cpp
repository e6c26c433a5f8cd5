// SPDX-License-Identifier: Apache-2.0
#include "jobs/report/run_record.hpp"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>

#include "io/file/file.hpp"
#include "io/file/text_file.hpp"
#include "jobs/cli/options/values.hpp"
#include "jobs/report/advice.hpp"

namespace tessera::jobs {

namespace {

using Json = nlohmann::ordered_json;
constexpr std::size_t largest_log = std::size_t{4} << 30;

Json read_json(const std::string& path) {
  if (!io::exists(path)) return Json::object();
  Json json = Json::parse(io::read_text(path), nullptr, /*allow_exceptions=*/false);
  if (!json.is_object())
    throw Error(ExitCode::data, "it is no JSON object", path, "Remove it to have a report without");
  return json;
}

struct Point {
  double step = 0, value = 0;
};

/// At most about 2000 points: of each bucket the smallest and the largest value, so that spikes stay visible.
std::vector<Point> thinned(const std::vector<Point>& points) {
  constexpr std::size_t buckets = 1000;
  if (points.size() <= 2 * buckets) return points;
  std::vector<Point> kept;
  for (std::size_t b = 0; b < buckets; ++b) {
    const auto first = points.begin() + static_cast<std::ptrdiff_t>(b * points.size() / buckets),
               last = points.begin() + static_cast<std::ptrdiff_t>((b + 1) * points.size() / buckets);
    // A value that is not finite counts as the largest.
    auto [low, high] = std::minmax_element(first, last, [](const Point& x, const Point& y) {
      return std::isfinite(x.value) && (!std::isfinite(y.value) || x.value < y.value);
    });
    if (low->step > high->step) std::swap(low, high);
    kept.push_back(*low);
    if (low != high) kept.push_back(*high);
  }
  return kept;
}

Json as_json(const std::vector<Point>& points) {
  Json list = Json::array();
  for (const Point& point : thinned(points))
    list.push_back({point.step, std::isfinite(point.value) ? Json(point.value) : Json(nullptr)});
  return list;
}

using Curves = std::map<std::string, std::vector<Point>>;

/// What logging.jsonl says.
struct Log {
  Curves series;
  std::map<std::string, Curves> evaluations;  // by figure and data set
  Json last_evaluation;                       // {"step": N, "sets": {SET: {FIGURE: value}}}
  Json warnings = Json::array();
  std::vector<Json> steps;  // the last records of steps, at most `recent`
  Json best_evaluation;
  double seconds_before = 0, elapsed = 0;  // of training: in processes before the last one, and in that one
  static constexpr std::size_t recent = 200;

  void add(const Json& record);
  void add_step(const Json& record, double step);
  void add_evaluation(const Json& record, double step);
};

/// "eval_nll_loss" is {"validation", "nll_loss"}, "eval_code_ppl" {"code", "ppl"}; of keys that are no figures, {}.
std::pair<std::string, std::string> set_and_figure(const std::string& key) {
  if (!key.starts_with("eval_")) return {};
  const std::string name = key.substr(5);
  for (const char* figure :
       {"rewards/chosen", "rewards/rejected", "rewards/margins", "rewards/accuracies", "logps/chosen", "logps/rejected",
        "kl", "accuracy", "margin", "min_reward", "mean_reward", "max_reward", "nll_loss", "loss", "ppl", "token_acc",
        "tokens", "pairs", "answers"}) {  // nll_loss before loss, whose end it has
    if (name == figure) return {"validation", figure};
    if (const std::string end = std::string("_") + figure; name.ends_with(end))
      return {name.substr(0, name.size() - end.size()), figure};
  }
  return {};
}

void Log::add_step(const Json& record, double step) {
  const auto put = [&](const char* name, const char* key, double factor) {
    const auto found = record.find(key);
    if (found == record.end()) return;
    series[name].push_back({step, found->is_number() ? factor * found->get<double>() : NAN});
  };
  for (const char* key : {"loss",
                          "grad_norm",
                          "learning_rate",
                          "tokens_per_second",
                          "loss_tokens_per_second",
                          "loss_scale",
                          "rewards/chosen",
                          "rewards/rejected",
                          "rewards/margins",
                          "rewards/accuracies",
                          "logps/chosen",
                          "logps/rejected",
                          "kl",
                          "accuracy",
                          "margin",
                          "min_reward",
                          "mean_reward",
                          "max_reward",
                          "token_acc",
                          "pairs_per_second",
                          "answers_per_second"})
    put(key, key, 1);
  put("memory", "memory(GiB)", 1);
  put("host_memory", "host_memory(GiB)", 1);
  put("mfu", "mfu", 100);
  if (const double seconds = record.value("time_step", 0.0); seconds > 0) {
    put("comm", "time_comm", 100 / seconds);
    put("data", "time_data", 100 / seconds);
  }
  elapsed = record.value("elapsed_time", 0.0);
  steps.push_back(record);
  if (steps.size() > 2 * recent) steps.erase(steps.begin(), steps.begin() + recent);
}

void Log::add(const Json& record) {
  if (!record.is_object()) return;
  if (record.contains("warning")) {
    const Json row = {record.at("warning"), record.value("text", "")};
    if (std::ranges::find(warnings, row) == warnings.end()) warnings.push_back(row);
    return;
  }
  if (record.contains("resume")) {  // a resumed run counts its time from 0 again
    seconds_before += elapsed;
    elapsed = 0;
  }
  const auto step = record.find("global_step");
  if (step == record.end() || !step->is_number()) return;
  const auto at = step->get<double>();
  if (record.contains("loss")) return add_step(record, at);
  if (record.contains("eval_runtime")) add_evaluation(record, at);
}

void Log::add_evaluation(const Json& record, double step) {
  last_evaluation = {{"step", step}, {"sets", Json::object()}};
  for (const auto& [key, value] : record.items()) {
    const auto [set, figure] = set_and_figure(key);
    if (set.empty()) continue;
    last_evaluation["sets"][set][figure] = value;
    evaluations[figure][set].push_back({step, value.is_number() ? value.get<double>() : NAN});
  }
  const auto loss_of = [](const Json& evaluation) {
    const Json loss = evaluation.value("eval_loss", Json());
    return loss.is_number() ? loss.get<double>() : INFINITY;
  };
  if (best_evaluation.is_null() || loss_of(record) < loss_of(best_evaluation)) best_evaluation = record;
}

Log read_log(const std::string& path) {
  Log log;
  std::istringstream lines(io::read_text(path, largest_log));
  std::int64_t number = 0, first_bad = 0, bad = 0;
  for (std::string line; std::getline(lines, line);) {
    ++number;
    const Json record = Json::parse(line, nullptr, /*allow_exceptions=*/false);
    const bool is_cut_short = lines.eof();  // the last line of a run that was killed has no end
    if (!record.is_object() && !is_cut_short && ++bad == 1) first_bad = number;
    log.add(record);
  }
  if (bad > 0)
    log.warnings.push_back(
        {"logging.jsonl", strfmt("%ld lines are no records and not read, the first is line %ld", bad, first_bad)});
  return log;
}

std::string plain(const Json& value) {
  if (value.is_null()) return "";
  if (value.is_string()) return value.get<std::string>();
  if (!value.is_array()) return value.dump();
  std::string text;
  for (const Json& item : value) text += (text.empty() ? "" : " ") + plain(item);
  return text;
}

std::string number_text(const Json& value, const char* format) {
  return value.is_number() ? strfmt(format, value.get<double>()) : value.is_string() ? value.get<std::string>() : "–";
}

/// The median: a step that waited for a checkpoint or for a neighbor does not move it.
double median(std::vector<double> values) {
  if (values.empty()) return 0;
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

double median_of(const std::vector<Json>& steps, const char* key, const char* divisor = nullptr) {
  std::vector<double> values;
  for (const Json& step : steps) {
    const double by = divisor == nullptr ? 1 : step.value(divisor, 0.0);
    if (by > 0) values.push_back(step.value(key, 0.0) / by);
  }
  return median(values);
}

/// "64 = 4 × 2 × 8 ranks": samples of a step, as micro-batch, accumulation and the ranks that have different ones.
std::string batch_text(const Json& run) {
  const Json settings = run.value("settings", Json::object()), batch = run.value("batch", Json::object()),
             mesh = run.value("mesh", Json::object());
  if (!settings.contains("global_batch_size") || batch.empty()) return "";
  const long ranks = mesh.value("replicate", 1L) * mesh.value("shard", 1L);
  return strfmt("%ld = %ld × %ld × %ld rank%s", settings.value("global_batch_size", 0L), batch.value("micro_batch", 0L),
                batch.value("accumulation", 0L), ranks, ranks == 1 ? "" : "s");
}

Json facts_of(const Log& log, const Json& run) {
  Json facts = Json::array();
  if (log.steps.empty()) return facts;
  const Json& last = log.steps.back();
  facts.push_back({"steps", strfmt("%ld / %ld", last.value("global_step", 0L), last.value("max_steps", 0L))});
  if (const std::string batch = batch_text(run); !batch.empty()) facts.push_back({"samples a step", batch});
  facts.push_back({"training loss", number_text(last.at("loss"), "%.4f")});
  if (!log.best_evaluation.is_null())
    facts.push_back({"best validation loss", number_text(log.best_evaluation.value("eval_loss", Json()), "%.4f") +
                                                 strfmt(" (step %ld)", log.best_evaluation.value("global_step", 0L))});
  std::string rates = human_count(median_of(log.steps, "tokens_per_second"));
  if (last.contains("loss_tokens_per_second"))
    rates += ", " + human_count(median_of(log.steps, "loss_tokens_per_second")) + " with loss";
  facts.push_back({"tokens per second", rates});
  if (last.contains("mfu")) facts.push_back({"model FLOP/s", strfmt("%.1f %%", 100 * median_of(log.steps, "mfu"))});
  const double memory = last.value("memory(GiB)", 0.0);
  if (last.contains("memory_total(GiB)"))
    facts.push_back({"memory of the GPU; of the host",
                     strfmt("%.2f of %.2f GiB; %.2f GiB", memory, last.value("memory_total(GiB)", 0.0),
                            last.value("host_memory(GiB)", 0.0))});
  else facts.push_back({"memory", human_bytes(memory * 1024 * 1024 * 1024)});
  facts.push_back({"communication", strfmt("%.1f %%", 100 * median_of(log.steps, "time_comm", "time_step"))});
  facts.push_back({"time", human_time(log.seconds_before + log.elapsed)});
  return facts;
}

/// The command as a shell takes it; of several ranks with the launcher that starts as many.
std::string command_text(const Json& run) {
  std::string text;
  const long ranks = run.value("world", 1L);
  int words = 0;
  for (const Json& item : run.value("command", Json::array())) {
    if (words++ == 1 && ranks > 1) text += strfmt(" launch -n %ld --", ranks);
    const std::string word = plain(item);
    const bool is_plain = !word.empty() && std::ranges::all_of(word, [](char c) {
      return std::isalnum(static_cast<unsigned char>(c)) != 0 || std::strchr("_-+=./:,@%", c) != nullptr;
    });
    std::string quoted = "'";
    for (const char c : word) quoted += c == '\'' ? "'\\''" : std::string(1, c);
    text += (text.empty() ? "" : " ") + (is_plain ? word : quoted + "'");
  }
  return text;
}

/// What the run used, whichever options said so: compared between runs.
Json values_of(const Json& run) {
  Json rows = Json::array();
  const Json settings = run.value("settings", Json::object()), batch = run.value("batch", Json::object()),
             mesh = run.value("mesh", Json::object());
  const auto add = [&](const char* name, const Json& from, const char* key) {
    if (from.contains(key)) rows.push_back({name, plain(from.at(key))});
  };
  add("ranks", run, "world");
  add("nodes", run, "nodes");
  add("strategy", run, "strategy");
  std::string axes;
  for (const auto& [axis, size] : mesh.items()) axes += (axes.empty() ? "" : " × ") + axis + " " + plain(size);
  if (!axes.empty()) rows.push_back({"mesh", axes});
  add("transport", run, "transport");
  add("samples a step", settings, "global_batch_size");
  add("micro-batch", batch, "micro_batch");
  add("accumulation", batch, "accumulation");
  for (const char* key : {"parameters", "trainable_parameters", "gradient_checkpointing", "compute_dtype",
                          "reduce_dtype", "threads_per_rank", "isa", "blas", "mpi", "compiler", "commit"})
    add(key, run, key);
  for (const auto& [key, value] : settings.items())
    if (!run.contains(key) && key != "global_batch_size") rows.push_back({key, plain(value)});
  return rows;
}

Json config_of(const Json& args) {
  Json rows = Json::array();
  for (const auto& [name, entry] : args.items())
    if (entry.is_object()) rows.push_back({name, plain(entry.value("value", Json())), entry.value("source", "")});
  return rows;
}

Json machine_of(const Json& run) {
  Json rows = Json::array();
  for (const char* key : {"version", "commit", "compiler", "mpi", "blas", "isa", "command", "directory", "hosts",
                          "world", "nodes", "transport", "strategy", "threads_per_rank", "compute_dtype",
                          "reduce_dtype", "parameters", "trainable_parameters"})
    if (run.contains(key)) rows.push_back({std::string_view(key) == "world" ? "ranks" : key, plain(run.at(key))});
  return rows;
}

std::string run_summary(const Json& run) {
  if (run.empty()) return "no run.json";
  const long world = run.value("world", 1L), nodes = run.value("nodes", 1L);
  return strfmt("%s parameters, ", human_count(run.value("parameters", 0.0)).c_str()) + run.value("strategy", "") +
         ", " + run.value("compute_dtype", "") +
         strfmt(", %ld rank%s on %ld node%s", world, world == 1 ? "" : "s", nodes, nodes == 1 ? "" : "s");
}

std::string status_in(const std::string& directory) {
  std::string status = "unknown";
  if (const std::string path = directory + "/STATUS"; io::exists(path)) status = io::read_text(path, 4096);
  while (status.ends_with('\n')) status.pop_back();
  std::ranges::replace(status, '\n', ' ');
  return status;
}

/// trace/, or --trace_dir, which may be relative to where the run was started.
std::string trace_directory(const std::string& directory, const Json& args, const Json& run) {
  const Json named = args.value("trace_dir", Json::object());
  const std::string given = plain(named.is_object() ? named.value("value", Json()) : Json());
  if (given.empty()) return directory + "/trace";
  return (std::filesystem::path(run.value("directory", "")) / given).string();
}

/// Throws nlohmann::json::exception of values of other types than a run writes.
Json record_of(const std::string& directory) {
  const Log log = read_log(directory + "/logging.jsonl");
  const Json run = read_json(directory + "/run.json"), args = read_json(directory + "/args.json");
  Json series = Json::object(), evaluations = Json::object();
  for (const auto& [name, points] : log.series) series[name] = as_json(points);
  for (const auto& [figure, sets] : log.evaluations)
    for (const auto& [set, points] : sets) evaluations[figure][set] = as_json(points);
  const WaitingShares shares{median_of(log.steps, "time_comm", "time_step"),
                             median_of(log.steps, "time_data", "time_step")};
  const std::string name = run.value("run_name", "");
  const std::string path = std::filesystem::absolute(directory).lexically_normal().string();
  const std::string folder =
      std::filesystem::path(path.ends_with('/') ? path + "." : path + "/.").parent_path().filename().string();
  return {{"label", name.empty() ? folder : name},
          {"directory", path},
          {"status", status_in(directory)},
          {"summary", run_summary(run)},
          {"command", command_text(run)},
          {"facts", facts_of(log, run)},
          {"values", values_of(run)},
          {"series", series},
          {"evaluations", evaluations},
          {"last_evaluation", log.last_evaluation},
          {"memory", run.value("memory", Json())},
          {"trace", read_step_trace(trace_directory(directory, args, run))},
          {"advice", advice(shares, args, run)},
          {"warnings", log.warnings},
          {"config", config_of(args)},
          {"machine", machine_of(run)}};
}

}  // namespace

Json read_run_record(const std::string& directory) {
  try {
    return record_of(directory);
  } catch (const Json::exception& error) {
    throw Error(ExitCode::data,
                std::string("logging.jsonl, run.json or args.json is not as a run writes it: ") + error.what(),
                directory, "Restore the file, or run again");
  }
}

}  // namespace tessera::jobs
