// SPDX-License-Identifier: Apache-2.0
#pragma once
// What mpirun writes to stderr beside what its ranks write, without what it adds to an end that a rank has explained.

#include <sys/types.h>

#include <string>
#include <string_view>
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
  bool signals_expected_ = false;
};

/// A process that copies a pipe to stderr through a filter. No thread of this one does it: Linux tells a child of each
/// thread of its parent that ends, so that mpirun would be asked twice to end if this process were killed, and would
/// then leave its ranks. What mpirun says at its end is printed all the same.
class MpirunOutput {
 public:
  /// Of a process with one thread, which has no write end of the pipe. Takes the pipe.
  explicit MpirunOutput(int pipe);
  ~MpirunOutput();
  MpirunOutput(const MpirunOutput&) = delete;
  MpirunOutput& operator=(const MpirunOutput&) = delete;
  /// MpirunFilter::expect_signals.
  void expect_signals();
  /// mpirun has ended: prints the rest. Does not wait for processes that keep the pipe open, and 2 s for those that go
  /// on writing.
  void finish();
  /// The caller has waited for this child: it may be the copying one.
  void reaped(pid_t child) {
    if (child == copier_) copier_ = 0;
  }

 private:
  pid_t copier_ = 0;  // 0: it has ended
};

}  // namespace tessera::jobs
