// SPDX-License-Identifier: Apache-2.0
#include "jobs/cli/commands/mpirun_output.hpp"

#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <thread>
#include <utility>

#include "runtime/base/error.hpp"

namespace tessera::jobs {

namespace {

using Clock = std::chrono::steady_clock;

constexpr std::string_view forwarding = "mpirun: Forwarding signal ", killing = "mpirun: killing job";

bool is_dashes(std::string_view line) { return line.find_first_not_of('-') == std::string_view::npos; }
bool is_edge(std::string_view line) { return line.size() >= 70 && is_dashes(line); }
bool has(std::string_view text, std::string_view part) { return text.find(part) != std::string_view::npos; }

/// True if a line that begins so may be one of mpirun's own.
bool may_be_mpirun(std::string_view begin) {
  const auto may_be = [&](std::string_view whole) { return begin.starts_with(whole) || whole.starts_with(begin); };
  return is_dashes(begin) || begin[0] == '[' || may_be(forwarding) || may_be(killing);
}

/// How the first line of a box begins that is_known_end knows; by Open MPI 5 mpirun is prterun.
constexpr std::string_view openings[] = {"MPI_ABORT was invoked on rank", "Primary job  terminated normally, but",
                                         "mpirun noticed that",           "mpirun detected that",
                                         "prterun noticed that",          "prterun detected that"};
bool opens_box(std::string_view line) {
  return std::ranges::any_of(openings, [&](std::string_view opening) { return line.starts_with(opening); });
}
bool may_open_box(std::string_view begin) {
  return opens_box(begin) ||
         std::ranges::any_of(openings, [&](std::string_view opening) { return opening.starts_with(begin); });
}

/// The exit codes of this program (docs/failures.md).
bool is_own_code(int code) { return (code >= 1 && code <= 6) || code == 75; }

void write_all(std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = ::write(STDERR_FILENO, text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return;  // nobody reads: mpirun is not to wait
    text.remove_prefix(static_cast<std::size_t>(written));
  }
}

}  // namespace

bool MpirunFilter::is_known_end(const std::string& box) const {
  if (has(box, "MPI_ABORT was invoked on rank") || has(box, "Primary job  terminated normally, but")) return true;
  if (has(box, "exited on signal")) return signals_expected_;
  constexpr std::string_view label = "Exit code:";
  const std::size_t at = box.find(label);
  return has(box, "exited with non-zero status") && at != std::string::npos &&
         is_own_code(std::atoi(box.c_str() + at + label.size()));
}

/// A line after one of dashes.
std::string MpirunFilter::line_of_box(const std::string& line) {
  constexpr std::size_t longest_box = 16384;
  const std::string_view text(line.data(), line.size() - 1);
  const bool is_first = box_.find('\n') == box_.size() - 1;
  if (is_first && is_edge(text)) return std::exchange(box_, line);
  box_ += line;
  if (!is_edge(text) && box_.size() < longest_box && (!is_first || opens_box(text))) return "";
  const std::string box = std::exchange(box_, "");
  dropped_ = is_edge(text) && is_known_end(box);
  return dropped_ ? "" : box;
}

/// What is printed once a line is complete.
std::string MpirunFilter::line(const std::string& line) {
  if (!box_.empty()) return line_of_box(line);
  const std::string_view text(line.data(), line.size() - 1);
  if (is_edge(text)) return box_ = line, "";
  if (text.starts_with(forwarding) || text.starts_with(killing)) return "";
  if (text.starts_with('[') && has(text, "sent help message help-mpi-api.txt / mpi-abort")) return dropped_ = true, "";
  if (dropped_ && text.starts_with('[') && has(text, "orte_base_help_aggregate")) return "";
  dropped_ = dropped_ && text.empty();
  return line;
}

/// True if a line that begins so is not printed before its end.
bool MpirunFilter::is_held(std::string_view begin) const {
  if (box_.empty()) return may_be_mpirun(begin);
  return box_.find('\n') < box_.size() - 1 || is_dashes(begin) || may_open_box(begin);
}

std::string MpirunFilter::take(std::string_view more) {
  std::string out;
  while (!more.empty()) {
    const std::size_t end = more.find('\n'), size = end == std::string_view::npos ? more.size() : end + 1;
    held_ += more.substr(0, size);
    more.remove_prefix(size);
    const bool complete = held_.ends_with('\n');
    if (within_line_) out += std::exchange(held_, "");
    else if (complete) out += line(std::exchange(held_, ""));
    else if (!is_held(held_)) out += rest();
    else continue;
    within_line_ = !complete;
  }
  return out;
}

std::string MpirunFilter::rest() {
  within_line_ = within_line_ || !held_.empty();
  return std::exchange(box_, "") + std::exchange(held_, "");
}

namespace {

constexpr int has_ended = SIGUSR1, are_expected = SIGUSR2;  // what the copying process is told: mpirun, signals

/// Copies standard input until it ends, or until mpirun has ended and nothing comes. All signals are blocked.
void copy_filtered(const sigset_t& all) {
  MpirunFilter filter;
  std::array<char, 4096> buffer{};
  constexpr std::chrono::seconds longest_silence{1}, longest_end{2};
  Clock::time_point read_last = Clock::now();
  std::optional<Clock::time_point> ended;
  for (;;) {
    pollfd ready{STDIN_FILENO, POLLIN, 0};
    const int count = ::poll(&ready, 1, 100);
    const Clock::time_point now = Clock::now();
    constexpr timespec at_once{};
    for (int told; (told = ::sigtimedwait(&all, nullptr, &at_once)) > 0;) {
      if (told == has_ended) ended = now;
      if (told == are_expected) filter.expect_signals();
    }
    if (ended && (count == 0 || now - *ended > longest_end)) break;
    if (count == 0 && now - read_last > longest_silence) write_all(filter.rest());  // mpirun writes a box at once
    if (count <= 0) continue;
    read_last = now;
    const ssize_t size = ::read(STDIN_FILENO, buffer.data(), buffer.size());
    if (size < 0 && errno == EINTR) continue;
    if (size <= 0) break;
    write_all(filter.take({buffer.data(), static_cast<std::size_t>(size)}));
  }
  write_all(filter.rest());
}

}  // namespace

MpirunOutput::MpirunOutput(int pipe) {
  sigset_t all, before;
  ::sigfillset(&all);
  ::sigprocmask(SIG_BLOCK, &all, &before);  // also SIGPIPE: a write then fails
  copier_ = ::fork();
  if (copier_ == 0) {
    ::dup2(pipe, STDIN_FILENO);
    ::close(STDOUT_FILENO);
    (void)::close_range(STDERR_FILENO + 1, ~0U, 0);
    copy_filtered(all);
    ::_exit(0);
  }
  const int not_forked = errno;
  ::sigprocmask(SIG_SETMASK, &before, nullptr);
  ::close(pipe);
  if (copier_ < 0)
    throw Error(ExitCode::internal, std::string("fork: ") + std::strerror(not_forked), "launch",
                "Close other programs");
}

MpirunOutput::~MpirunOutput() { finish(); }

void MpirunOutput::expect_signals() {
  if (copier_ > 0) ::kill(copier_, are_expected);
}

void MpirunOutput::finish() {
  if (copier_ <= 0) return;
  ::kill(copier_, has_ended);
  constexpr int tries = 400;  // of 10 ms
  for (int i = 0; i < tries; ++i) {
    const pid_t waited = ::waitpid(copier_, nullptr, WNOHANG);
    if (waited == copier_ || (waited < 0 && errno == ECHILD)) {
      copier_ = 0;
      return;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  ::kill(copier_, SIGKILL);  // nobody reads this process' stderr
  ::waitpid(copier_, nullptr, 0);
  copier_ = 0;
}

}  // namespace tessera::jobs
