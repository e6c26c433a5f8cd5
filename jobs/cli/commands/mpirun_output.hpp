// SPDX-License-Identifier: Apache-2.0
#pragma once
// What mpirun writes to stderr beside what its ranks write, without what it adds to an end that a rank has explained.

#include <atomic>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

namespace tessera::jobs {

/// Drops "Forwarding signal", and the boxes of dashes that say that a rank has ended with an exit code of this program,
/// which has printed why. Other boxes stay: no slots, an unknown host, a rank that was killed. A line of dashes is held
/// back until what follows it is no line with which mpirun begins one of those boxes.
class MpirunFilter {
 public:
  /// What may be printed after `more` has come.
  [[nodiscard]] std::string take(std::string_view more);
  /// What is held back: at the end, or when nothing has come for a time.
  [[nodiscard]] std::string rest();
  /// From now on it is no news that ranks are ended by a signal.
  void expect_signals() { signals_expected_ = true; }

 private:
  [[nodiscard]] std::string line(const std::string& line);
  [[nodiscard]] std::string line_of_box(const std::string& line);
  [[nodiscard]] bool is_held(std::string_view begin) const;
  [[nodiscard]] bool is_known_end(const std::string& box) const;
  std::string held_;  // the begin of a line that may be mpirun's
  std::string box_;   // lines since one of dashes
  bool within_line_ = false, dropped_ = false;
  std::atomic<bool> signals_expected_ = false;
};

/// Copies a pipe to this process' stderr through a filter, on a thread.
class MpirunOutput {
 public:
  explicit MpirunOutput(int pipe);
  ~MpirunOutput();
  MpirunOutput(const MpirunOutput&) = delete;
  MpirunFilter& filter() { return filter_; }
  /// mpirun has ended: prints the rest. Does not wait for processes that keep the pipe open, and 2 s for those that go
  /// on writing.
  void finish();

 private:
  void copy();
  int pipe_;
  MpirunFilter filter_;
  std::atomic<bool> ended_ = false;
  std::thread thread_;
};

}  // namespace tessera::jobs
