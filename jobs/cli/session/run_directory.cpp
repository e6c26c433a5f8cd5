// SPDX-License-Identifier: Apache-2.0
#include "jobs/cli/session/run_directory.hpp"

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <span>
#include <sstream>

#include <unistd.h>

#include "io/checkpoint/directory.hpp"
#include "io/file/file.hpp"
#include "io/file/text_file.hpp"
#include "io/model/model_directory.hpp"
#include "jobs/cli/session/signals.hpp"
#include "runtime/base/log.hpp"
#include "runtime/base/warning_list.hpp"

namespace tessera::jobs {

namespace fs = std::filesystem;

using Json = nlohmann::ordered_json;

Json json_number(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "Infinity" : "-Infinity";
  return value;
}

std::string records_to_keep(const std::string& log, const ContinuedRun& run) {
  std::string kept;
  std::istringstream lines(log);
  for (std::string line; std::getline(lines, line);) {
    const Json record = Json::parse(line, nullptr, /*allow_exceptions=*/false);
    if (!record.is_object()) continue;
    const auto step = record.find("global_step");
    if (step != record.end() && step->is_number_integer()) {
      if (step->get<std::int64_t>() > run.step) continue;
      if (run.finished && record.contains("eval_loss") && step->get<std::int64_t>() == run.step) continue;
    }
    kept += line + '\n';
  }
  return kept;
}

namespace {

[[noreturn]] void cannot_write(const std::string& path, const std::string& why, const Options& options) {
  throw Error(ExitCode::data, "the output directory cannot be written: " + why,
              path + "; --output_dir: " + options.value("output_dir").source.text, "Choose another --output_dir");
}

/// Number of the next version: one more than the largest v<N>-… there.
int next_version(const std::string& base) {
  const auto versions = io::list_versions(base);
  return versions.empty() ? 0 : versions.front().first + 1;
}

std::string timestamp() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  ::localtime_r(&now, &parts);
  char text[32];
  std::strftime(text, sizeof text, "%Y%m%d-%H%M%S", &parts);
  return text;
}

}  // namespace

void warn_of_replaced_run(World& world, const Options& options) {
  if (options.flag("add_version")) return;
  world.run_on_rank_0([&] {
    const std::string path = options.text("output_dir"), status = path + "/STATUS";
    std::error_code ignored;
    if (!fs::is_regular_file(status, ignored) || io::read_text(status, 4096) != "completed\n") return;
    if (!io::list_checkpoints(path).empty()) return;  // refused when the run directory is made
    log::warn(31, path + " contains a completed run: this one replaces its files (--add_version false)");
  });
}

namespace {

void note_killed_run(const std::string& path, bool locked) {
  if (locked) {
    io::remove_leftovers(path);
    io::put_model_in_place(path);
  }
  const std::string status = path + "/STATUS";
  std::error_code ignored;
  if (!fs::is_regular_file(status, ignored) || io::read_text(status, 4096) != "running\n") return;
  if (!locked) {
    log::info("earlier   " + path + " has STATUS running; whether that run still does is unknown: no locks there");
    return;
  }
  const auto checkpoints = io::list_checkpoints(path);
  const auto last = std::ranges::find(checkpoints, "", &io::FoundCheckpoint::problem);
  const std::string which = last == checkpoints.end() ? "none" : last->path;
  io::write_text(status, "failed\nkilled: nobody holds its lock | last checkpoint: " + which + "\n");
  log::info("earlier   the run in " + path +
            " was killed: its STATUS was running, and nobody holds its lock | last checkpoint: " + which);
}

}  // namespace

void note_killed_runs(const Options& options, bool locked) noexcept {
  try {
    const std::string base = options.text("output_dir");
    std::vector<std::string> directories{base};
    for (auto& [number, path] : io::list_versions(base)) directories.push_back(std::move(path));
    for (const std::string& path : directories) {
      try {
        note_killed_run(path, locked);
      } catch (const std::exception& failed) { log::info("earlier   " + path + ": " + failed.what()); }
    }
  } catch (const std::exception&) {  // what matters about the directory is found when this run's own is made
  }
}

namespace {

void remove_files(const std::string& directory, const std::string& prefix) {
  std::error_code ignored;
  for (const fs::directory_entry& entry : fs::directory_iterator(directory, ignored))
    if (entry.path().filename().string().starts_with(prefix)) fs::remove(entry.path(), ignored);
}

/// What the run whose records are replaced has written beside logging.jsonl, and this one may not write: viewers would
/// draw both runs as one, and the report would show the other one's trace.
void remove_records(const std::string& directory) {
  remove_files(directory + "/runs", "events.out.tfevents.");
  remove_files(directory + "/trace", "rank-");
  std::error_code ignored;
  fs::remove(directory + "/trace", ignored);  // if it is empty
  fs::remove(directory + "/report.html", ignored);
}

}  // namespace

void RunDirectory::create(const Options& options, const ContinuedRun& run) {
  const fs::path base = options.text("output_dir");
  std::error_code error;
  fs::create_directories(base, error);
  if (error) cannot_write(base.string(), error.message(), options);
  const bool continues = !run.directory.empty();
  path_ = continues ? run.directory : base.string();
  if (!continues && options.flag("add_version")) {
    // Two runs may start at once: the directory belongs to the one that creates it.
    for (int attempt = 0;; ++attempt) {
      const fs::path mine = base / strfmt("v%d-%s", next_version(base.string()), timestamp().c_str());
      if (fs::create_directory(mine, error)) {
        path_ = mine.string();
        break;
      }
      if (error || attempt == 100) cannot_write(mine.string(), error ? error.message() : "it exists", options);
    }
  }
  if (!continues && !io::list_checkpoints(path_).empty())
    throw Error(ExitCode::usage,
                "the output directory has checkpoints of an earlier run, which would mix with those of this one",
                path_ + "; --output_dir: " + options.value("output_dir").source.text,
                "Continue that run with --resume_from_checkpoint auto, remove them, or choose another --output_dir");
  const std::string log = file("logging.jsonl");
  try {
    io::write_text(file("STATUS"), "running\n");
    if (continues && fs::exists(log)) {
      // Renamed into place, also without a change: a process of the earlier run that was stopped, or cut off, while it
      // wrote goes on in the old file.
      io::write_text(log, records_to_keep(io::read_text(log, std::size_t{1} << 40), run));
    }
  } catch (const Error& failed) { cannot_write(path_, failed.line(), options); }
  if (!continues && fs::exists(log)) remove_records(path_);
  try {
    log_ = continues && fs::exists(log) ? io::File::open_to_write(log) : io::File::create(log);
    log_bytes_ = log_->size();
  } catch (const Error& failed) { cannot_write(log, failed.line(), options); }
  if (!reports_to_tensorboard(options)) return;
  const std::string events = options.has("logging_dir") ? options.text("logging_dir") : file("runs");
  tensorboard_ = std::make_unique<TensorBoardLog>(events, world_.host(), options,
                                                  continues ? std::optional<std::int64_t>(run.step + 1) : std::nullopt);
}

void check_output_directory(const Options& options) {
  const fs::path base = options.text("output_dir");
  std::error_code ignored;
  fs::path there = fs::absolute(base, ignored);
  while (!fs::exists(there, ignored) && there.has_relative_path()) there = there.parent_path();
  if (!fs::is_directory(there, ignored)) cannot_write(base.string(), there.string() + " is not a directory", options);
  if (::access(there.c_str(), W_OK | X_OK) != 0)
    cannot_write(base.string(), there.string() + ": " + std::strerror(errno), options);
}

bool writes_report(const Options& options) {
  return std::ranges::find(options.list("report_to"), "none") == options.list("report_to").end();
}

RunDirectory::RunDirectory(World& world, const Options& options, const ContinuedRun& run) : world_(world) {
  world.run_on_rank_0([&] { create(options, run); });
  path_ = world.broadcast(path_);
  handle_end_signals(file("STATUS").c_str(), world.rank() == 0);
}

RunDirectory::~RunDirectory() { handle_end_signals(nullptr, false); }

void RunDirectory::status(const std::string& word) {
  check_owner();
  const std::string line = word + "\n";
  const io::File out = io::File::open_to_write(file("STATUS"));
  out.write_at(0, std::as_bytes(std::span(line)));
  if (::ftruncate(out.descriptor(), static_cast<off_t>(line.size())) != 0)
    throw io::system_error("write", file("STATUS"), errno);
  out.sync();
  log_warnings();
}

void RunDirectory::fail(const std::string& reason) noexcept {
  try {
    status(reason.empty() ? "failed" : "failed\n" + reason);
  } catch (...) {  // report the error that led here
  }
}

void RunDirectory::write(const std::string& name, const std::string& text) {
  if (world_.rank() != 0) return;
  check_owner();
  io::write_text(file(name), text);
}

bool RunDirectory::append(const Json& record) {
  const std::string text = record.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
  bool ours = false;
  try {
    check_owner();
    ours = true;
    log_->write_at(log_bytes_, std::as_bytes(std::span(text)));
  } catch (const Error& error) {
    if (io::is_taken(error)) throw;
    if (ours && ::ftruncate(log_->descriptor(), static_cast<off_t>(log_bytes_)) != 0) {
    }  // the next line is written over it
    log::warn(53, "the records of the run are incomplete: " + error.line());
    return false;
  }
  log_bytes_ += text.size();
  return true;
}

void RunDirectory::log_warnings() {
  if (!log_) return;
  for (const log::Warning& warning : log::warnings_from(logged_warnings_)) {
    if (!append({{"warning", strfmt("W%03d", warning.number)}, {"text", warning.text}})) return;
    ++logged_warnings_;
  }
}

void RunDirectory::log(const Json& record) {
  if (!log_) return;
  log_warnings();
  if (append(record) && tensorboard_ != nullptr) tensorboard_->record(record);
}

}  // namespace tessera::jobs
