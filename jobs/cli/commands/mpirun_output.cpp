// SPDX-License-Identifier: Apache-2.0
#include "jobs/cli/commands/mpirun_output.hpp"

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <utility>

namespace tessera::jobs {

namespace {

constexpr std::string_view forwarding = "mpirun: Forwarding signal ", killing = "mpirun: killing job";

bool is_dashes(std::string_view line) { return line.find_first_not_of('-') == std::string_view::npos; }
bool is_edge(std::string_view line) { return line.size() >= 70 && is_dashes(line); }
bool has(std::string_view text, std::string_view part) { return text.find(part) != std::string_view::npos; }

/// True if a line that begins so may be one of mpirun's own.
bool may_be_mpirun(std::string_view begin) {
  const auto may_be = [&](std::string_view whole) { return begin.starts_with(whole) || whole.starts_with(begin); };
  return is_dashes(begin) || begin[0] == '[' || may_be(forwarding) || may_be(killing);
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

/// What is printed once a line is complete.
std::string MpirunFilter::line(const std::string& line) {
  constexpr std::size_t longest_box = 16384;
  const std::string_view text(line.data(), line.size() - 1);
  if (!box_.empty()) {
    box_ += line;
    if (!is_edge(text) && box_.size() < longest_box) return "";
    const std::string box = std::exchange(box_, "");
    dropped_ = is_edge(text) && is_known_end(box);
    return dropped_ ? "" : box;
  }
  if (is_edge(text)) return box_ = line, "";
  if (text.starts_with(forwarding) || text.starts_with(killing)) return "";
  if (text.starts_with('[') && has(text, "sent help message help-mpi-api.txt / mpi-abort")) return dropped_ = true, "";
  if (dropped_ && text.starts_with('[') && has(text, "orte_base_help_aggregate")) return "";
  dropped_ = dropped_ && text.empty();
  return line;
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
    else if (box_.empty() && !may_be_mpirun(held_)) out += std::exchange(held_, "");
    else continue;
    within_line_ = !complete;
  }
  return out;
}

std::string MpirunFilter::rest() { return std::exchange(box_, "") + std::exchange(held_, ""); }

MpirunOutput::MpirunOutput(int pipe) : pipe_(pipe), thread_([this] { copy(); }) {}

MpirunOutput::~MpirunOutput() {
  finish();
  ::close(pipe_);
}

void MpirunOutput::copy() {
  sigset_t all;
  ::sigfillset(&all);  // also SIGPIPE: a write then fails
  ::pthread_sigmask(SIG_BLOCK, &all, nullptr);
  std::array<char, 4096> buffer{};
  for (;;) {
    pollfd ready{pipe_, POLLIN, 0};
    const int count = ::poll(&ready, 1, 100);
    if (count == 0 && ended_) break;
    if (count <= 0) continue;
    const ssize_t size = ::read(pipe_, buffer.data(), buffer.size());
    if (size < 0 && errno == EINTR) continue;
    if (size <= 0) break;
    write_all(filter_.take({buffer.data(), static_cast<std::size_t>(size)}));
  }
  write_all(filter_.rest());
}

void MpirunOutput::finish() {
  ended_ = true;
  if (thread_.joinable()) thread_.join();
}

}  // namespace tessera::jobs
