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
/// which has printed why. Other boxes stay: no slots, an unknown host, a rank that was killed.
class MpirunFilter {
 public:
  /// What may be printed after `more` has come.
  [[nodiscard]] std::string take(std::string_view more);
  /// The rest, at the end.
  [[nodiscard]] std::string rest();
  /// From now on it is no news that ranks are ended by a signal.
  void expect_signals() { signals_expected_ = true; }

 private:
  [[nodiscard]] std::string line(const std::string& line);
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
  /// mpirun has ended: prints the rest. Does not wait for processes that keep the pipe open.
  void finish();

 private:
  void copy();
  int pipe_;
  MpirunFilter filter_;
  std::atomic<bool> ended_ = false;
  std::thread thread_;
};

}  // namespace tessera::jobs
