// SPDX-License-Identifier: Apache-2.0
// A command runs in a process group of its own; a link makes its output visible when it is complete.

#include "io/corpus/command_output.hpp"

#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <set>
#include <string_view>
#include <vector>

#include "io/file/file.hpp"
#include "io/file/free_space.hpp"
#include "runtime/base/hash.hpp"
#include "runtime/base/local_work.hpp"

namespace tessera::io {

namespace {

namespace fs = std::filesystem;

/// The environment without what the launcher of MPI processes has put there, so that a program that uses MPI starts by
/// itself, and without what this program has set for its own libraries.
std::vector<char*> environment_of_commands() {
  std::vector<char*> kept;
  const bool set_here = std::getenv("OPENBLAS_CORETYPE_WITHOUT_TESSERA") != nullptr;
  for (char** variable = ::environ; *variable != nullptr; ++variable) {
    const std::string_view text = *variable;
    if (!text.starts_with("OMPI_") && !text.starts_with("PMIX_") && !text.starts_with("PRTE_") &&
        !text.starts_with("GOMP_SPINCOUNT=") && !(set_here && text.starts_with("OPENBLAS_CORETYPE")))
      kept.push_back(*variable);
  }
  kept.push_back(nullptr);
  return kept;
}

/// A running /bin/sh -c. Ends what still runs when it goes out of scope.
class Shell {
 public:
  explicit Shell(const std::string& command) {
    int output[2], errors[2];
    if (::pipe2(output, O_CLOEXEC) != 0) throw system_error("run", command, errno);
    pipes_[0] = {.fd = output[0], .events = POLLIN, .revents = 0};
    if (::pipe2(errors, O_CLOEXEC) != 0) throw system_error("run", command, errno);
    pipes_[1] = {.fd = errors[0], .events = POLLIN, .revents = 0};
    const int failed = spawn(command, output[1], errors[1]);
    ::close(output[1]);
    ::close(errors[1]);
    if (failed != 0) throw system_error("run", "/bin/sh", failed);
  }
  ~Shell() {
    for (const pollfd& pipe : pipes_)
      if (pipe.fd >= 0) ::close(pipe.fd);
    if (child_ > 0) end();
  }
  Shell(const Shell&) = delete;
  Shell& operator=(const Shell&) = delete;

  /// Waits a tenth of a second at most for what is printed. False: nothing was.
  [[nodiscard]] bool read(const std::function<void(std::string_view)>& output,
                          const std::function<void(std::string_view)>& errors) {
    constexpr int milliseconds = 100;
    if (::poll(pipes_.data(), pipes_.size(), milliseconds) <= 0) return false;
    bool some = false;
    for (std::size_t i = 0; i < pipes_.size(); ++i) {
      if (pipes_[i].revents == 0) continue;
      const ssize_t got = ::read(pipes_[i].fd, buffer_.data(), buffer_.size());
      if (got > 0) {
        some = true;
        (i == 0 ? output : errors)({buffer_.data(), static_cast<std::size_t>(got)});
      } else if (got == 0 || errno != EINTR) {
        ::close(pipes_[i].fd);
        pipes_[i] = {.fd = -1, .events = 0, .revents = 0};  // poll leaves it out
      }
    }
    return some;
  }

  /// Whether the shell has ended; what it has started in the background may go on.
  [[nodiscard]] bool has_ended() {
    if (child_ > 0 && ::waitpid(child_, &status_, WNOHANG) == child_) child_ = 0;
    return child_ == 0;
  }
  /// After its end, as of waitpid.
  [[nodiscard]] int status() const { return status_; }

 private:
  int spawn(const std::string& command, int output, int errors) {
    posix_spawn_file_actions_t files;
    ::posix_spawn_file_actions_init(&files);
    ::posix_spawn_file_actions_addopen(&files, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    ::posix_spawn_file_actions_adddup2(&files, output, STDOUT_FILENO);
    ::posix_spawn_file_actions_adddup2(&files, errors, STDERR_FILENO);
    posix_spawnattr_t attributes;
    ::posix_spawnattr_init(&attributes);
    ::posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETSIGMASK);
    sigset_t all, none;
    ::sigfillset(&all);
    ::sigemptyset(&none);
    ::posix_spawnattr_setsigdefault(&attributes, &all);
    ::posix_spawnattr_setsigmask(&attributes, &none);
    std::string shell = "/bin/sh", option = "-c", text = command;
    std::array<char*, 4> words = {shell.data(), option.data(), text.data(), nullptr};
    std::vector<char*> environment = environment_of_commands();
    const int failed = ::posix_spawn(&child_, shell.c_str(), &files, &attributes, words.data(), environment.data());
    ::posix_spawn_file_actions_destroy(&files);
    ::posix_spawnattr_destroy(&attributes);
    if (failed != 0) child_ = 0;
    return failed;
  }
  /// SIGTERM to the group, and SIGKILL to what is left of it after the shell's end, or a second.
  void end() {
    const pid_t group = child_;
    ::kill(-group, SIGTERM);
    constexpr int waits = 100, microseconds = 10000;
    for (int i = 0; i < waits && !has_ended(); ++i) ::usleep(microseconds);
    ::kill(-group, SIGKILL);
    while (child_ > 0 && ::waitpid(child_, &status_, 0) < 0 && errno == EINTR) {}
  }

  pid_t child_ = 0;  // 0: it has ended
  int status_ = 0;
  std::array<pollfd, 2> pipes_ = {{{.fd = -1, .events = 0, .revents = 0}, {.fd = -1, .events = 0, .revents = 0}}};
  std::array<char, 1 << 16> buffer_{};
};

/// The last line that is not blank of what a program has written to its standard error.
class LastLine {
 public:
  void add(std::string_view text) {
    constexpr std::size_t most = 512;
    tail_ += text;
    if (tail_.size() > most) tail_.erase(0, tail_.size() - most);
  }
  [[nodiscard]] std::string text() const {
    const std::size_t last = tail_.find_last_not_of(" \t\r\n");
    if (last == std::string::npos) return "";
    const std::size_t before = tail_.find_last_of("\r\n", last);
    return tail_.substr(before == std::string::npos ? 0 : before + 1, last - before);
  }

 private:
  std::string tail_;
};

/// Throws unless the command has ended well and what it printed can be JSON Lines.
void require_rows(const DataFile& command, int status, const std::string& errors, std::string_view head) {
  const std::string last = errors.empty() ? "" : ": " + errors;
  if (WIFSIGNALED(status))
    throw Error(ExitCode::data, command.path + " was ended by signal " + std::to_string(WTERMSIG(status)) + last);
  if (const int code = WEXITSTATUS(status); code != 0)
    throw Error(ExitCode::data, command.path + strfmt(" ended with exit code %d", code) + last,
                std::filesystem::current_path().string(),
                "Try the command there, with /bin/sh -c; it is to print JSON Lines and to end with 0");
  if (head.empty())
    throw Error(ExitCode::data, command.path + " ended with exit code 0 and printed nothing", {},
                "It is to print JSON Lines on its standard output");
}

/// The first bytes of an output, without the blanks and the byte-order mark before them.
class Head {
 public:
  /// Throws if they begin no row.
  void add(const DataFile& command, std::string_view text) {
    constexpr std::size_t most = 256;
    const bool begins = text_.empty();
    text_ += text.substr(0, most - std::min(most, text_.size()));
    if (!begins) return;
    if (text_.starts_with("\xef\xbb\xbf")) text_.erase(0, 3);
    text_.erase(0, std::min(text_.find_first_not_of(" \t\r\n"), text_.size()));
    if (text_.empty() || text_.front() == '{') return;
    const bool compressed = text_.starts_with("\x1f\x8b") || text_.starts_with("\x28\xb5\x2f\xfd");
    throw Error(ExitCode::data,
                command.path + " does not print JSON Lines: " +
                    (compressed ? "its output is compressed" : "the first line is " + quote_name(first_line())),
                {},
                compressed ? "Add | zcat, or | zstdcat"
                           : "Each line is to be a JSON object; print messages on the standard error");
  }
  [[nodiscard]] const std::string& text() const { return text_; }

 private:
  [[nodiscard]] std::string first_line() const { return text_.substr(0, text_.find('\n')); }
  std::string text_;
};

/// The files below directories, each directory once. Links are followed; those to nothing are no files.
class FilesBelow {
 public:
  /// Throws Error (data) if it cannot be read.
  void add(const fs::path& directory) {
    std::error_code failed;
    const fs::path real = fs::canonical(directory, failed);
    if (!failed && !visited_.insert(real).second) return;
    std::vector<fs::path> entries;
    fs::directory_iterator entry;
    if (!failed) entry = fs::directory_iterator(directory, failed);
    for (; !failed && entry != fs::directory_iterator(); entry.increment(failed)) entries.push_back(entry->path());
    if (failed) throw system_error("read", directory.string(), failed.value());
    std::ranges::sort(entries);  // by which of two paths a directory is found
    for (const fs::path& path : entries) add_entry(path);
  }
  [[nodiscard]] std::vector<std::string>& files() { return files_; }

 private:
  void add_entry(const fs::path& path) {
    std::error_code failed;
    const fs::file_status status = fs::status(path, failed);
    if (status.type() == fs::file_type::none) throw system_error("read", path.string(), failed.value());
    if (fs::is_directory(status)) add(path);
    else if (fs::is_regular_file(status)) files_.push_back(path.string());
  }

  std::set<fs::path> visited_;
  std::vector<std::string> files_;
};

/// The files of these names, those of directories included, in the order of their names.
std::vector<std::string> files_of(const std::vector<std::string>& names) {
  FilesBelow below;
  for (const std::string& name : names) {
    std::error_code unknown;  // file_identity says what is wrong
    if (fs::is_directory(name, unknown)) below.add(name);
    else below.files().push_back(name);
  }
  std::ranges::sort(below.files());
  return below.files();
}

/// Runs a command and writes what it prints to a file.
void run_to_file(const DataFile& command, const std::string& path, const CommandOptions& options) {
  FreeSpace space(directory_of(path), options.reserve, [&](std::uint64_t written) {
    return Error(ExitCode::data,
                 command.path + strfmt(": after %lu bytes too little space is left for the rest", written),
                 directory_of(path), "Give --cache_dir on a larger disk");
  });
  File file = File::create(path);
  std::uint64_t written = 0;
  Head head;
  LastLine errors;
  Shell shell(command.command);
  const auto keep = [&](std::string_view text) {
    head.add(command, text);
    space.take(text.size());
    file.write_at(written, std::as_bytes(std::span(text)));
    written += text.size();
    note_local_work();
  };
  const auto show = [&](std::string_view text) {
    errors.add(text);
    [[maybe_unused]] const ssize_t shown = ::write(STDERR_FILENO, text.data(), text.size());
    note_local_work();
  };
  for (bool ended = false, printed = true; !ended || printed;) {
    ended = shell.has_ended();
    printed = shell.read(keep, show);
    if (options.check) options.check();
  }
  require_rows(command, shell.status(), errors.text(), head.text());
  file.sync();
  file.close();
}

}  // namespace

void name_command_outputs(World& world, std::vector<DataFile>& files, const CommandOptions& options) {
  if (std::ranges::none_of(files, is_command, &DataFile::path)) return;
  std::uint64_t seed = 0;
  std::string place;
  world.run_and_agree([&] {
    place = options.directory();
    if (world.rank() == 0) make_directories(place);
    seed = hash64(std::filesystem::current_path().string());
    for (const std::string& path : files_of(options.depends)) seed = hash64(file_identity(path), seed);
  });
  for (DataFile& file : files)
    if (is_command(file.path)) file.copy = place + strfmt("/command-%016lx.jsonl", hash64(file.command, seed));
}

void run_commands(World& world, std::vector<DataFile>& files, const CommandOptions& options) {
  name_command_outputs(world, files, options);
  for (DataFile& file : files) {
    if (!is_command(file.path)) continue;
    bool ran = false;
    world.run_on_rank_0([&] {
      if (exists(file.copy)) return;
      if (options.starts) options.starts(file);
      const std::string temporary = file.copy + "." + world.host() + "." + std::to_string(::getpid()) + ".tmp";
      try {
        run_to_file(file, temporary, options);
      } catch (...) {
        remove_quietly(temporary);
        throw;
      }
      // A run beside this one may have been first: both read what it has made.
      if (::link(temporary.c_str(), file.copy.c_str()) != 0 && errno != EEXIST)
        throw system_error("write", file.copy, errno);
      remove_quietly(temporary);
      sync_directory(directory_of(file.copy));
      ran = true;
    });
    if (options.made) options.made(file, ran);
  }
}

}  // namespace tessera::io
