// SPDX-License-Identifier: Apache-2.0
// The child reads the file and answers in JSON through a pipe; the parent checks the answer as untrusted input.
#include "io/inspect/sandbox.hpp"

#include <poll.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <nlohmann/json.hpp>

#include "io/file/file.hpp"
#include "io/model/safetensors.hpp"

namespace tessera::io {

using AnyJson = nlohmann::json;

namespace {

constexpr int most_seconds = 60;
constexpr rlim_t most_memory = rlim_t{4} << 30;
constexpr std::size_t most_answer = std::size_t{1} << 30;

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool limits_memory = false;  // sanitizers reserve terabytes of addresses
#else
constexpr bool limits_memory = true;
#endif

void limit(int resource, rlim_t most) {
  const struct rlimit value { most, most };
  (void)::setrlimit(static_cast<__rlimit_resource>(resource), &value);
}

void confine() {
  for (const int signal : {SIGSEGV, SIGBUS, SIGABRT, SIGFPE, SIGILL, SIGXCPU, SIGXFSZ, SIGTERM, SIGINT, SIGPIPE})
    ::signal(signal, SIG_DFL);
  if (limits_memory) limit(RLIMIT_AS, most_memory);
  limit(RLIMIT_CPU, most_seconds);
  limit(RLIMIT_FSIZE, 0);
  limit(RLIMIT_CORE, 0);
}

std::string answer(const std::string& path) {
  AnyJson json = AnyJson::object();
  try {
    const Hdf5Contents catalog = read_hdf5(path);
    json["datasets"] = AnyJson::array();
    for (const auto& d : catalog.datasets)
      json["datasets"].push_back({d.path, safetensors_type(d.dtype).name, d.shape, d.offset, d.bytes});
    json["attributes"] = AnyJson::array();
    for (const auto& a : catalog.attributes) json["attributes"].push_back({a.name, a.text, a.number});
  } catch (const std::exception& error) { json["error"] = error.what(); }
  return json.dump(-1, ' ', false, AnyJson::error_handler_t::replace);
}

[[noreturn]] void child(const std::string& path, int out) {
  confine();
  int code = 1;
  try {
    const std::string text = answer(path);
    std::size_t done = 0;
    while (done < text.size()) {
      const ssize_t n = ::write(out, text.data() + done, text.size() - done);
      if (n < 0 && errno == EINTR) continue;
      if (n <= 0) break;
      done += static_cast<std::size_t>(n);
    }
    code = done == text.size() ? 0 : 1;
  } catch (...) { code = 1; }
  ::_exit(code);
}

/// Reads until the pipe is closed or a limit is reached.
std::string drain(int in) {
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(2 * most_seconds);
  std::string text;
  char buffer[65536];
  while (text.size() < most_answer) {
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(until - std::chrono::steady_clock::now()).count();
    struct pollfd ready {
      in, POLLIN, 0
    };
    const int n = left > 0 ? ::poll(&ready, 1, static_cast<int>(left)) : 0;
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) break;
    const ssize_t got = ::read(in, buffer, sizeof buffer);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) break;
    text.append(buffer, static_cast<std::size_t>(got));
  }
  return text;
}

Hdf5Contents parse(const std::string& text, const std::string& path) {
  const AnyJson json = AnyJson::parse(text, nullptr, false);
  if (!json.is_object()) throw Error(ExitCode::data, "E120 " + path + ": the process that read it failed");
  if (json.contains("error")) throw Error(ExitCode::data, json["error"].get<std::string>());
  Hdf5Contents catalog;
  try {
    for (const AnyJson& d : json.at("datasets")) {
      const auto type = find_safetensors_type(d.at(1).get<std::string>());
      if (!type) throw Error(ExitCode::data, "E120 " + path + ": the process that read it failed");
      catalog.datasets.push_back({d.at(0), type->dtype, d.at(2).get<std::vector<std::int64_t>>(), d.at(3), d.at(4)});
    }
    for (const AnyJson& a : json.at("attributes")) catalog.attributes.push_back({a.at(0), a.at(1), a.at(2)});
  } catch (const AnyJson::exception&) {
    throw Error(ExitCode::data, "E120 " + path + ": the process that read it failed");
  }
  return catalog;
}

}  // namespace

Hdf5Contents read_hdf5_sandboxed(const std::string& path) {
  static_cast<void>(File::open_to_read(path));  // throws the better error if it cannot be read
  int ends[2] = {};
  if (::pipe(ends) != 0) throw system_error("read", path, errno);
  const pid_t process = ::fork();
  if (process < 0) {
    const int why = errno;
    ::close(ends[0]), ::close(ends[1]);
    throw system_error("read", path, why);
  }
  if (process == 0) {
    ::close(ends[0]);
    child(path, ends[1]);
  }
  ::close(ends[1]);
  std::string text;
  try {
    text = drain(ends[0]);
  } catch (...) {
    ::close(ends[0]), ::kill(process, SIGKILL), ::waitpid(process, nullptr, 0);
    throw;
  }
  ::close(ends[0]);
  int status = 0;
  pid_t ended = ::waitpid(process, &status, WNOHANG);
  for (int i = 0; ended == 0 && i < 1000; ++i) {  // still running: it has a second to end
    ::usleep(i < 100 ? 200 : 1000);
    ended = ::waitpid(process, &status, WNOHANG);
  }
  if (ended == 0) {
    ::kill(process, SIGKILL);
    while (::waitpid(process, &status, 0) < 0 && errno == EINTR) {}
  }
  if (WIFSIGNALED(status))
    throw Error(
        ExitCode::data,
        strfmt("E120 %s: the HDF5 library was ended by signal %d while it read it: it is damaged, or made to do harm",
               path.c_str(), WTERMSIG(status)));
  if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
    throw Error(ExitCode::data, "E120 " + path + ": it could not be read within the limits on memory and time");
  return parse(text, path);
}

}  // namespace tessera::io
