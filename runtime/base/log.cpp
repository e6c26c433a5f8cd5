// SPDX-License-Identifier: Apache-2.0
#include "runtime/base/log.hpp"

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <mutex>
#include <set>

#include "runtime/base/error.hpp"
#include "runtime/base/error_listener.hpp"
#include "runtime/base/progress_line.hpp"
#include "runtime/base/warning_list.hpp"

namespace tessera::log {

namespace {
struct State {
  int rank = 0, world = 1;
  Level level = Level::info;
  std::string host;
  std::set<std::string> said;
  std::vector<Warning> warnings;
  std::string progress;  // the line at the bottom of the terminal; "": none
  std::mutex mutex, output;
};
State& state() {
  static State s;
  return s;
}
std::string prefix(const State& s) {
  return s.world > 1 ? strfmt("[rank %d@%s] ", s.rank, s.host.c_str()) : std::string();
}

void put(FILE* to, const std::string& text) {
  std::fwrite(text.data(), 1, text.size(), to);
  std::fflush(to);
}

constexpr const char* clear_line = "\r\033[K";

void say(FILE* to, const std::string& line) {
  State& s = state();
  std::lock_guard lock(s.output);
  if (!s.progress.empty()) put(stdout, clear_line);
  put(to, line + '\n');  // one call: lines of several ranks do not mix
  if (!s.progress.empty()) put(stdout, s.progress);
}
}  // namespace

void set_rank(int rank, int world, std::string host) {
  std::lock_guard lock(state().mutex);
  state().rank = rank;
  state().world = world;
  state().host = std::move(host);
}

void set_level(Level level) { state().level = level; }

void info(const std::string& line) {
  if (state().rank == 0 && state().level == Level::info) say(stdout, line);
}

void show_progress(const std::string& line) {
  State& s = state();
  std::lock_guard lock(s.output);
  if (s.rank != 0 || line == s.progress) return;
  put(stdout, clear_line + line);
  s.progress = line;
}

void warn_here(int number, const std::string& text) {
  State& s = state();
  std::lock_guard lock(s.mutex);
  if (!s.said.insert(text).second) return;
  s.warnings.push_back({number, text});
  if (s.level != Level::error) say(stderr, prefix(s) + strfmt("warning W%03d: ", number) + text);
}

void warn(int number, const std::string& text) {
  if (state().rank == 0) warn_here(number, text);
}

int warnings() {
  std::lock_guard lock(state().mutex);
  return static_cast<int>(state().warnings.size());
}

std::vector<Warning> warnings_from(int first) {
  std::lock_guard lock(state().mutex);
  const std::vector<Warning>& all = state().warnings;
  return {all.begin() + std::min<std::ptrdiff_t>(first, static_cast<std::ptrdiff_t>(all.size())), all.end()};
}

namespace {
std::string one_line(std::string text) {
  std::ranges::replace(text, '\n', ' ');
  return text;
}
}  // namespace

void error(const std::string& text) { say(stderr, "error: " + one_line(text)); }

namespace {
std::atomic<ErrorListener> listener{nullptr};
}

void set_error_listener(ErrorListener other) noexcept { listener = other; }

void error_here(const std::string& text) {
  if (const ErrorListener told = listener) told(one_line(text).c_str());
  error(prefix(state()) + text);
}

}  // namespace tessera::log
