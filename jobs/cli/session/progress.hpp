// SPDX-License-Identifier: Apache-2.0
#pragma once
// Progress of long work on rank 0: a bar on a terminal, plain lines elsewhere.

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>

#include "jobs/cli/options/options.hpp"

namespace tessera::jobs {

enum class ProgressStyle : unsigned char { none, lines, bar };
/// That of --progress. auto is a bar where stdout is a terminal and no launcher stands between, else lines: under
/// mpirun stdout is a terminal on every rank, even when mpirun's own is a file.
[[nodiscard]] ProgressStyle progress_style(const Options& options);
/// For all progress from now on; lines at first.
void set_progress_style(ProgressStyle style);

/// Some work: its name as lines begin ("tokens"), and what is counted.
struct Work {
  enum class Unit : unsigned char { bytes, samples, steps };
  std::string name;
  Unit unit = Unit::bytes;
  double seconds_between_lines = 5;
  bool prints_lines = true;  // false: a bar, or nothing
};
/// What is done, and how long it has taken.
struct WorkDone {
  std::uint64_t done = 0, total = 0;
  double seconds = 0;
  std::string detail = {};  // "1.2M tokens"; "": none
};
/// "tokens    12.5% | 1.00 GiB of 8.00 GiB | 100.00 MiB/s | 00:01:10 left | 1.2M tokens"
[[nodiscard]] std::string progress_text(const Work& work, const WorkDone& done);
/// The same behind a bar, "tokens    [=====>          ]  12.5% | …", shortened to `width` columns.
[[nodiscard]] std::string progress_bar(const Work& work, const WorkDone& done, std::size_t width);

/// Shows some work from its construction to its end or its destruction. In the style `lines` it prints one every
/// seconds_between_lines, so that short work prints none; a bar is drawn at most ten times a second.
class ProgressView {
 public:
  explicit ProgressView(Work work) : work_(std::move(work)) {}
  ~ProgressView();
  ProgressView(const ProgressView&) = delete;
  ProgressView(ProgressView&&) = default;
  void operator()(std::uint64_t done, std::uint64_t total, const std::string& detail = {});

 private:
  using Clock = std::chrono::steady_clock;
  Work work_;
  Clock::time_point began_ = Clock::now(), shown_ = began_;
  std::uint64_t last_ = 0;
  bool drawn_ = false;
};

/// Of an evaluation, in samples.
[[nodiscard]] std::function<void(std::int64_t done, std::int64_t samples)> evaluation_progress();

}  // namespace tessera::jobs
