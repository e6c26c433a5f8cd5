#include "runtime/base/log.hpp"

#include <algorithm>
#include <cstdio>
#include <mutex>
#include <set>

#include "runtime/base/error.hpp"
#include "runtime/base/warning_list.hpp"

namespace tessera::log {

namespace {
struct State {
  int rank = 0, world = 1;
  bool quiet = false;
  std::string host;
  std::set<std::string> said;
  std::vector<Warning> warnings;
  std::mutex mutex;
};
State& state() {
  static State s;
  return s;
}
std::string prefix(const State& s) {
  return s.world > 1 ? strfmt("[rank %d@%s] ", s.rank, s.host.c_str()) : std::string();
}

void say(FILE* to, const std::string& line) {
  std::string one = line;
  one += '\n';
  std::fwrite(one.data(), 1, one.size(), to);  // one call: lines of several ranks do not mix
  std::fflush(to);
}
}  // namespace

void set_rank(int rank, int world, std::string host) {
  std::lock_guard lock(state().mutex);
  state().rank = rank;
  state().world = world;
  state().host = std::move(host);
}

void set_quiet(bool quiet) { state().quiet = quiet; }

void info(const std::string& line) {
  if (state().rank == 0 && !state().quiet) say(stdout, line);
}

void warn_here(int number, const std::string& text) {
  State& s = state();
  std::lock_guard lock(s.mutex);
  if (!s.said.insert(text).second) return;
  s.warnings.push_back({number, text});
  say(stderr, prefix(s) + strfmt("warning W%03d: ", number) + text);
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

void error(const std::string& text) {
  std::string line = text;
  for (auto& c : line)
    if (c == '\n') c = ' ';
  say(stderr, "error: " + line);
}

void error_here(const std::string& text) { error(prefix(state()) + text); }

}  // namespace tessera::log
