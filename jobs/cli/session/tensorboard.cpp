// SPDX-License-Identifier: Apache-2.0
#include "jobs/cli/session/tensorboard.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "runtime/base/log.hpp"

namespace tessera::jobs {

namespace {

using Json = nlohmann::ordered_json;

void warn_of_events(const Error& error) {
  log::warn(51, "the event file for TensorBoard is incomplete: " + error.line());
}

/// Lines that Markdown shows as they are.
std::string as_code(const std::string& text) {
  std::string out = "    ";
  for (const char c : text) {
    out += c;
    if (c == '\n') out += "    ";
  }
  return out;
}

std::string options_table(const Options& options) {
  std::string table = "| option | value | source |\n|---|---|---|\n";
  for (const OptionSpec& spec : option_table()) {
    if (!options.given(spec.name)) continue;
    std::string value;
    for (const std::string& item : options.list(spec.name)) value += (value.empty() ? "" : " ") + item;
    for (const std::string& cell : {std::string(spec.name), value, options.value(spec.name).source.text}) {
      table += "| ";
      for (const char c : cell) table += c == '|' ? "\\|" : c == '\n' ? " " : std::string(1, c);
      table += ' ';
    }
    table += "|\n";
  }
  return table;
}

/// The number of a record; what JSON has no number for is a string there (json_number).
std::optional<float> number_in(const Json& value) {
  if (value.is_number()) return static_cast<float>(value.get<double>());
  if (value == "NaN") return std::numeric_limits<float>::quiet_NaN();
  if (value == "Infinity") return std::numeric_limits<float>::infinity();
  if (value == "-Infinity") return -std::numeric_limits<float>::infinity();
  return std::nullopt;
}

}  // namespace

bool reports_to_tensorboard(const Options& options) {
  return std::ranges::find(options.list("report_to"), "tensorboard") != options.list("report_to").end();
}

std::vector<io::SummaryValue> summary_of(const Json& record) {
  std::vector<io::SummaryValue> values;
  if (!record.contains("global_step")) return values;
  for (const auto& [key, value] : record.items()) {
    if (key == "global_step" || key == "max_steps") continue;
    const std::string tag = key.starts_with("eval_") ? "eval/" + key.substr(5) : "train/" + key;
    if (const auto number = number_in(value)) values.push_back({tag, *number});
    if (!value.is_array()) continue;
    for (std::size_t i = 0; i < value.size(); ++i) {
      const std::string index = "/" + std::to_string(i);
      if (const auto number = number_in(value[i])) values.push_back({tag + index, *number});
      else if (value[i].is_object() && value[i].contains("text"))
        values.push_back({key + index + "/text_summary", as_code(value[i].at("text").get<std::string>())});
    }
  }
  return values;
}

TensorBoardLog::TensorBoardLog(const std::string& directory, const std::string& host, const Options& options,
                               std::optional<std::int64_t> purge_step) {
  try {
    file_.emplace(directory, host, purge_step);
  } catch (const Error& error) { warn_of_events(error); }
  write(0, {{"args/text_summary", options_table(options)}});
}

void TensorBoardLog::text(const std::string& tag, const std::string& text) {
  write(0, {{tag + "/text_summary", as_code(text)}});
}

void TensorBoardLog::record(const Json& record) {
  if (std::vector<io::SummaryValue> values = summary_of(record); !values.empty())
    write(record.at("global_step").get<std::int64_t>(), std::move(values));
}

void TensorBoardLog::write(std::int64_t step, std::vector<io::SummaryValue> values) {
  if (!file_) return;
  try {
    file_->write(step, std::move(values));
  } catch (const Error& error) { warn_of_events(error); }
}

}  // namespace tessera::jobs
