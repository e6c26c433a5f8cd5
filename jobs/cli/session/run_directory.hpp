#pragma once
// The output directory of a run: made and proven writable before the first step; STATUS, args.json, run.json,
// logging.jsonl.

#include <cstdio>
#include <span>
#include <string>

#include "jobs/cli/options/options.hpp"
#include "runtime/comm/world.hpp"

namespace tessera::jobs {

/// A double with all its digits, or "NaN", "Infinity" as a string: JSON either way.
[[nodiscard]] std::string json_number(double value);
[[nodiscard]] std::string json_string(const std::string& text);

/// One JSON object on one line, in the order of the calls.
class JsonLine {
 public:
  JsonLine& number(const char* key, double value);
  JsonLine& numbers(const char* key, std::span<const double> values);
  JsonLine& integer(const char* key, std::int64_t value);
  JsonLine& text(const char* key, const std::string& value);
  [[nodiscard]] std::string str() const { return "{" + body_ + "}"; }

 private:
  std::string body_;
};

class RunDirectory {
 public:
  /// Collective. Rank 0 makes --output_dir, in it v<N>-<timestamp> (unless --add_version false), and STATUS; every rank
  /// is told. `existing`: goes on in that directory, logging.jsonl is continued. Throws Error (data) on every rank
  /// alike if it cannot be made or written.
  RunDirectory(World& world, const Options& options, const std::string& existing = {});
  ~RunDirectory();
  RunDirectory(const RunDirectory&) = delete;

  [[nodiscard]] const std::string& path() const { return path_; }
  [[nodiscard]] std::string file(const std::string& name) const { return path_ + "/" + name; }
  /// "running", "completed", "preempted", "failed", in place, which a full disk allows. Any rank may say failed; never
  /// throws then. A rank that a signal ends says it too (signals.hpp).
  void status(const std::string& word);
  void fail() noexcept;
  /// Rank 0: whole file, atomically.
  void write(const std::string& name, const std::string& text);
  /// Rank 0: appends to logging.jsonl, flushed. Throws Error (data) if the disk is full.
  void log(const JsonLine& line);

 private:
  void create(const Options& options, const std::string& existing);
  World& world_;
  std::string path_;
  std::FILE* log_ = nullptr;
};

}  // namespace tessera::jobs
