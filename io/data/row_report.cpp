// SPDX-License-Identifier: Apache-2.0
// Counts of rows and their keys, as JSON beside a token file.

#include "io/data/row_report.hpp"

#include <nlohmann/json.hpp>

#include "io/data/rows.hpp"
#include "io/tokenizer/utf8.hpp"

namespace tessera::io {

std::string shortened_key(const std::string& key) {
  const std::string begin = key.substr(0, UnreadKeys::longest);
  return begin.substr(0, utf8::valid_prefix(begin));
}

void UnreadKeys::add(const std::string& key, std::int64_t rows) {
  const std::string name = shortened_key(key);
  const auto found = counts.find(name);
  if (found != counts.end()) found->second += rows;
  else if (counts.size() < most) counts.emplace(name, rows);
  else others += rows;
}

void SkippedRows::add(const std::function<std::string()>& where, const RowError& error) {
  ++count;
  if (!error.literal.empty()) {
    Literals& of = literals[error.literal];
    if (of.rows++ == 0) of.first = where();
    return;
  }
  if (named.size() < most_named) named.push_back(where() + ": " + error.why);
}

void SkippedRows::add_skipped(const SkippedRows& later) {
  count += later.count;
  for (const std::string& one : later.named)
    if (named.size() < most_named) named.push_back(one);
  for (const auto& [what, more] : later.literals) {
    Literals& of = literals[what];
    if (of.rows == 0) of.first = more.first;
    of.rows += more.rows;
  }
}

std::string SkippedRows::one() const {
  if (!named.empty()) return named.front();
  const auto& [what, rows] = *literals.begin();
  return rows.first + ": " + literal_error(what).why;
}

void RowReport::add(const RowReport& other) {
  skipped.add_skipped(other.skipped);
  for (const auto& [key, rows] : other.skipped.unread.counts) skipped.unread.add(key, rows);
  skipped.unread.others += other.skipped.unread.others;
  without_tools += other.without_tools;
  without_reasoning += other.without_reasoning;
  without_messages += other.without_messages;
  files_of_pairs += other.files_of_pairs;
  files_of_margins += other.files_of_margins;
  files_of_labels += other.files_of_labels;
  pairs += other.pairs;
  equal_pairs += other.equal_pairs;
  labelled += other.labelled;
  after_think += other.after_think;
  absent_columns.insert(absent_columns.end(), other.absent_columns.begin(), other.absent_columns.end());
}

namespace {

nlohmann::ordered_json report_json(const SkippedRows& skipped) {
  nlohmann::ordered_json literals = nlohmann::ordered_json::object();
  for (const auto& [what, of] : skipped.literals) literals[what] = {{"rows", of.rows}, {"first", of.first}};
  return {{"rows", skipped.count}, {"named", skipped.named}, {"python_literals", literals}};
}

SkippedRows skipped_from_json(const nlohmann::json& json) {
  SkippedRows skipped;
  skipped.count = json.at("rows").get<std::int64_t>();
  skipped.named = json.at("named").get<std::vector<std::string>>();
  for (const auto& [what, of] : json.at("python_literals").items())
    skipped.literals[what] = {of.at("rows").get<std::int64_t>(), of.at("first").get<std::string>()};
  return skipped;
}

std::string report_text(const nlohmann::ordered_json& json) {
  return json.dump(1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

}  // namespace

std::string skipped_text(const SkippedRows& skipped) { return report_text(report_json(skipped)); }

SkippedRows parse_skipped(std::string_view text) { return skipped_from_json(nlohmann::json::parse(text)); }

std::string row_report_name(const std::string& token_file) { return token_file + ".report"; }

std::string row_report_text(const RowReport& report, std::int64_t tokens) {
  nlohmann::ordered_json json = {{"tokens", tokens},
                                 {"skipped", report_json(report.skipped)},
                                 {"unread_keys", report.skipped.unread.counts},
                                 {"other_unread_keys", report.skipped.unread.others},
                                 {"without_tools", report.without_tools},
                                 {"without_reasoning", report.without_reasoning},
                                 {"without_messages", report.without_messages},
                                 {"absent_columns", report.absent_columns}};
  if (report.files_of_pairs > 0) json["pairs"] = {{"rows", report.pairs}, {"equal", report.equal_pairs}};
  if (report.files_of_margins > 0) json["pairs"]["margins"] = true;
  if (report.files_of_labels > 0) json["pairs"]["labels"] = true;
  if (report.labelled > 0) json["pairs"]["labelled"] = report.labelled;
  if (report.after_think > 0) json["pairs"]["after_empty_think"] = report.after_think;
  return report_text(json);
}

RowReport parse_row_report(std::string_view text, std::int64_t tokens, const std::string& path) {
  const auto refuse = [&](const std::string& rule) {
    return Error(ExitCode::data, path + " does not say what became of the rows of its token file: " + rule, {},
                 "Run tessera tokenize again, or remove it");
  };
  try {
    const nlohmann::json json = nlohmann::json::parse(text);
    if (const auto of = json.at("tokens").get<std::int64_t>(); of != tokens)
      throw refuse(strfmt("it is of a file of %ld tokens, not of %ld", of, tokens));
    RowReport report;
    report.skipped = skipped_from_json(json.at("skipped"));
    for (const auto& [key, rows] : json.at("unread_keys").items())
      report.skipped.unread.add(key, rows.get<std::int64_t>());
    report.skipped.unread.others = json.at("other_unread_keys").get<std::int64_t>();
    report.without_tools = json.at("without_tools").get<std::int64_t>();
    report.without_reasoning = json.at("without_reasoning").get<std::int64_t>();
    report.without_messages = json.value("without_messages", std::int64_t{0});  // absent: of an older version
    report.absent_columns = json.at("absent_columns").get<std::vector<std::string>>();
    if (json.contains("pairs")) {
      report.files_of_pairs = 1;
      report.files_of_margins = json.at("pairs").value("margins", false) ? 1 : 0;
      report.files_of_labels = json.at("pairs").value("labels", false) ? 1 : 0;
      report.pairs = json.at("pairs").at("rows").get<std::int64_t>();
      report.equal_pairs = json.at("pairs").at("equal").get<std::int64_t>();
      report.labelled = json.at("pairs").value("labelled", std::int64_t{0});
      report.after_think = json.at("pairs").value("after_empty_think", std::int64_t{0});
    }
    return report;
  } catch (const nlohmann::json::exception&) { throw refuse("it is not a file that tessera tokenize has written"); }
}

}  // namespace tessera::io
