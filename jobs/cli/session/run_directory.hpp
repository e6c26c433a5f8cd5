// SPDX-License-Identifier: Apache-2.0
#pragma once
// The output directory of a run: STATUS, args.json, run.json, logging.jsonl, runs/. Made, and found writable, before
// the first step.

#include <cstdint>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

#include "io/checkpoint/directory.hpp"
#include "io/file/file.hpp"
#include "jobs/cli/options/options.hpp"
#include "jobs/cli/session/tensorboard.hpp"
#include "runtime/comm/world.hpp"

namespace tessera::jobs {

/// A JSON number; what JSON has no number for is the string "NaN", "Infinity" or "-Infinity".
[[nodiscard]] nlohmann::ordered_json json_number(double value);

/// Where a run continues, and after which step of it.
struct ContinuedRun {
  std::string directory;  // ""; a new directory
  std::int64_t step = 0;
  bool finished = false;  // no step is left: only what follows the last one is done again
};
/// The records of a logging.jsonl that stay when its run continues after `run.step`: those of later steps will be
/// written again, of a finished run its last evaluation too. A line that is no record (a killed run leaves half a one)
/// goes.
[[nodiscard]] std::string records_to_keep(const std::string& log, const ContinuedRun& run);

/// Collective, for a run that does not continue: warns (W031) if --add_version false makes it replace the files of a
/// completed run.
void warn_of_replaced_run(World& world, const Options& options);

/// One process, before a run: prints a line for each run under --output_dir (in it, or in a v<N>-… directory) whose
/// STATUS is still "running". With `locked`, this process holds the lock that such a run would hold: it was killed, its
/// STATUS becomes "failed" with the reason, and what it left unfinished is removed. Without, whether it still runs is
/// unknown. Never throws.
void note_killed_runs(const Options& options, bool locked) noexcept;

/// One process: throws Error (data) if --output_dir could not be made or written. Makes nothing.
void check_output_directory(const Options& options);

/// False: --report_to none. Then a run writes no report.html either.
[[nodiscard]] bool writes_report(const Options& options);

class RunDirectory {
 public:
  /// Collective. Rank 0 makes --output_dir, in it v<N>-<timestamp> (unless --add_version false), and STATUS; every rank
  /// learns the path. A run that continues uses its directory, and its logging.jsonl less the records of the steps that
  /// are done again. Throws Error (data) on every rank if it cannot be made or written.
  RunDirectory(World& world, const Options& options, const ContinuedRun& run = {});
  ~RunDirectory();
  RunDirectory(const RunDirectory&) = delete;

  [[nodiscard]] const std::string& path() const { return path_; }
  [[nodiscard]] std::string file(const std::string& name) const { return path_ + "/" + name; }
  /// Writes "running", "completed", "preempted" or "failed" as STATUS, in place, which works on a full disk too. Where
  /// a signal ended the run, a second line has its name and the last checkpoint (signals.hpp).
  void status(const std::string& word);
  /// Any rank: STATUS is "failed", and the reason on a second line. A signal that ends a rank has the same effect
  /// (signals.hpp).
  void fail(const std::string& reason = {}) noexcept;
  /// The run's mark in the lock of `base`, --output_dir (io::DirectoryLock::owner). From now on status(), fail() and
  /// log() leave alone what belongs to a later run.
  void set_owner(const std::string& base, const std::string& owner) { base_ = base, owner_ = owner; }
  /// Throws Error (data), E150, if another run has taken --output_dir (io::check_owner).
  void check_owner() const { io::check_owner(base_, owner_); }
  /// Rank 0: the whole file, atomically.
  void write(const std::string& name, const std::string& text);
  /// Rank 0: appends one line to logging.jsonl, after a line of each new warning, and its values to the event file. A
  /// line that cannot be written (a full disk) is left out, with one warning (W053); later ones may succeed. Throws
  /// Error (data), E150, and writes nothing if another run has taken --output_dir.
  void log(const nlohmann::ordered_json& record);
  /// Null: not rank 0, or --report_to does not name tensorboard.
  [[nodiscard]] TensorBoardLog* tensorboard() const { return tensorboard_.get(); }

 private:
  void create(const Options& options, const ContinuedRun& run);
  void log_warnings();
  /// False: the line could not be written, or the owner of the directory could not be read. The file then ends with the
  /// last whole line. Throws as log().
  bool append(const nlohmann::ordered_json& record);
  World& world_;
  std::string path_, base_, owner_;
  std::optional<io::File> log_;  // logging.jsonl, on rank 0
  std::uint64_t log_bytes_ = 0;
  int logged_warnings_ = 0;
  std::unique_ptr<TensorBoardLog> tensorboard_;
};

}  // namespace tessera::jobs
