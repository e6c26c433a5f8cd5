// SPDX-License-Identifier: Apache-2.0
#include "jobs/cli/commands/launch.hpp"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <optional>
#include <system_error>

#include "jobs/cli/commands/launch_binding.hpp"
#include "jobs/cli/commands/mpirun_output.hpp"
#include "jobs/cli/options/options.hpp"
#include "jobs/cli/session/signals.hpp"
#include "runtime/base/log.hpp"
#include "runtime/comm/launcher_environment.hpp"

namespace tessera::jobs {

namespace {

using Clock = std::chrono::steady_clock;

/// `timeout` and terminals may send a signal twice at once: that is one request.
constexpr std::chrono::milliseconds same_request{300};
/// Given to mpirun to end its ranks, which takes a second or two; then it is killed.
constexpr std::chrono::seconds time_to_end{10};
/// Given to mpirun to end once the ranks of this host have ended.
constexpr std::chrono::seconds time_for_other_hosts{30};

void say(const std::string& line) { std::fprintf(stderr, "tessera launch: %s\n", line.c_str()); }

/// The command line of mpirun, and whether the ranks train.
struct Job {
  std::vector<std::string> command;
  bool trains = false;
};

/// Whether a word names this program, as after mpirun: `tessera launch -n 4 -- tessera train run.yaml`.
bool is_this_program(const std::string& word, const std::filesystem::path& program) {
  std::error_code failed;
  return word == "tessera" ||
         (word.find('/') != std::string::npos && std::filesystem::equivalent(word, program, failed));
}

Job job_of(const std::vector<std::string>& arguments, const sigset_t& mask) {
  const std::filesystem::path program = std::filesystem::read_symlink("/proc/self/exe");
  const auto end = std::ranges::find(arguments, "--");
  auto first = end == arguments.end() ? end : end + 1;
  if (first != arguments.end() && is_this_program(*first, program)) ++first;
  if (first == arguments.end())
    throw Error(ExitCode::usage, "launch: no command for the ranks", "command line",
                "tessera launch -n 4 -- train run.yaml: mpirun's options, then --, then the command");
  const CommandSpec* command = find_command(*first);
  if (command == nullptr || command->bit == for_launch)
    throw Error(ExitCode::usage, "launch: \"" + *first + "\" is not a command that ranks run", "command line",
                "tessera launch -n 4 -- train run.yaml");
  if (const LauncherEnvironment outer = launcher_environment(); *outer.size_variable != '\0')
    throw Error(ExitCode::usage,
                std::string("launch: this process was itself started by a launcher (") + outer.size_variable + ")",
                "environment", "Start tessera launch once, outside mpirun and srun");
  Job job{{"mpirun"}, command->bit == for_train};
  const std::vector<std::string> bound = with_binding({arguments.begin() + 1, end}, mask);
  job.command.insert(job.command.end(), bound.begin(), bound.end());
  job.command.push_back(program.string());
  job.command.insert(job.command.end(), first, arguments.end());
  return job;
}

/// The signals that this process takes, without those that it was started to ignore (nohup).
sigset_t signals_to_take() {
  sigset_t taken;
  ::sigemptyset(&taken);
  for (const int number : {SIGTERM, SIGINT, SIGHUP, SIGUSR1, SIGUSR2, SIGCHLD}) {
    struct sigaction now {};
    if (::sigaction(number, nullptr, &now) == 0 && (now.sa_handler == SIG_DFL || number == SIGCHLD))
      ::sigaddset(&taken, number);
  }
  return taken;
}

/// From now on writes go to the end of the file, also those of other processes that share this descriptor.
void append_to(int descriptor) {
  struct stat there {};
  if (::fstat(descriptor, &there) != 0 || !S_ISREG(there.st_mode)) return;
  if (const int flags = ::fcntl(descriptor, F_GETFL); flags >= 0) (void)::fcntl(descriptor, F_SETFL, flags | O_APPEND);
}

struct Started {
  pid_t mpirun;
  int stderr_pipe;
};

/// Starts mpirun in a session of its own; it ends if this process does. Throws Error (usage) if there is none.
Started start(const Job& job, const sigset_t& before) {
  std::vector<char*> words;
  for (const std::string& word : job.command) words.push_back(const_cast<char*>(word.c_str()));
  words.push_back(nullptr);
  int failure[2], errors[2];
  if (::pipe2(failure, O_CLOEXEC) != 0 || ::pipe2(errors, O_CLOEXEC) != 0)
    throw Error(ExitCode::internal, std::string("pipe: ") + std::strerror(errno), "launch", "Close other programs");
  const pid_t parent = ::getpid(), child = ::fork();
  if (child == 0) {
    ::setsid();
    // Both may be one file, which this process then writes to beside mpirun.
    for (const int output : {STDOUT_FILENO, STDERR_FILENO}) append_to(output);
    ::dup2(errors[1], STDERR_FILENO);
    ::prctl(PR_SET_PDEATHSIG, SIGTERM);
    ::sigprocmask(SIG_SETMASK, &before, nullptr);
    if (::getppid() == parent) ::execvp(words[0], words.data());
    const int why = errno;
    (void)!::write(failure[1], &why, sizeof why);
    ::_exit(127);
  }
  const int not_forked = errno;
  ::close(failure[1]);
  ::close(errors[1]);
  int why = 0;
  if (child > 0) (void)!::read(failure[0], &why, sizeof why);
  ::close(failure[0]);
  if (child < 0) why = not_forked;
  if (why != 0)
    throw Error(ExitCode::usage, std::string("mpirun cannot be started: ") + std::strerror(why), "PATH",
                "Install Open MPI, or add the folder of its mpirun to PATH");
  return {child, errors[0]};
}

/// True if a process that `mpirun` has started here runs this program.
bool has_ranks(pid_t mpirun) try {
  namespace fs = std::filesystem;
  std::error_code ended;
  const fs::path program = fs::read_symlink("/proc/self/exe");
  for (const fs::directory_entry& thread : fs::directory_iterator(strfmt("/proc/%d/task", mpirun))) {
    std::ifstream children(thread.path() / "children");
    for (pid_t child = 0; children >> child;)
      if (fs::read_symlink(strfmt("/proc/%d/exe", child), ended) == program) return true;
  }
  return false;
} catch (const std::filesystem::filesystem_error&) { return false; }  // mpirun has just ended

/// mpirun and what was asked of it.
class Launched {
 public:
  Launched(const Started& started, bool trains)
      : mpirun_(started.mpirun), trains_(trains), output_(started.stderr_pipe) {}

  /// Until mpirun ends; its exit code.
  int wait(const sigset_t& taken) {
    std::optional<int> status;
    while (!(status = reap())) {
      timespec second{1, 0};
      const int number = ::sigtimedwait(&taken, nullptr, &second);
      look_for_ranks();
      if (number > 0 && number != SIGCHLD) take(number);
      // Again: it may have been starting its ranks; one whose ranks have ended would die of it.
      else if (number < 0 && request_ && !ended_at_ && !alone_since_) ::kill(mpirun_, SIGUSR1);
      if (ended_at_ && Clock::now() - *ended_at_ > time_to_end) ::kill(mpirun_, SIGKILL);
    }
    output_.finish();
    return code(*status);
  }

 private:
  /// Waits for whatever has ended. mpirun's status, if it has.
  std::optional<int> reap() {
    int status = 0;
    for (pid_t ended; (ended = ::waitpid(-1, &status, WNOHANG)) > 0;) {
      if (ended == mpirun_) return status;
      output_.reaped(ended);
    }
    return std::nullopt;
  }

  /// All ranks of a run end together. mpirun waits on where a host is cut off, until TCP gives that host's daemon up.
  void look_for_ranks() {
    if (has_ranks(mpirun_)) {
      had_ranks_ = true;
      alone_since_.reset();
    } else if (had_ranks_ && !alone_since_) {
      alone_since_ = Clock::now();
    } else if (had_ranks_ && !lost_host_ && Clock::now() - *alone_since_ > time_for_other_hosts) {
      lost_host_ = true;
      say("the ranks of this host have ended, and mpirun waits for another host, which is cut off or hangs: ending it");
      ::kill(mpirun_, SIGKILL);
    }
  }

  void take(int number) {
    if (ended_at_) return;  // any signal would cut short the time that mpirun gives its ranks to end
    if (number == SIGUSR1 || number == SIGUSR2) {
      asked_ = asked_ || number == SIGUSR1;
      ::kill(mpirun_, number);  // which passes it on to every rank
      return;
    }
    if (trains_ && !request_) {
      request_ = Clock::now();
      asked_ = true;
      say(std::string(signal_name(number)) +
          ": the run finishes its step, saves a checkpoint and ends with exit code 75; the signal once more ends it at "
          "once");
      ::kill(mpirun_, SIGUSR1);
      return;
    }
    if (request_ && Clock::now() - *request_ < same_request) return;
    ended_at_ = Clock::now();
    ended_by_ = number;
    output_.expect_signals();
    say(std::string(signal_name(number)) + ": ending the run");
    ::kill(mpirun_, SIGTERM);
  }

  [[nodiscard]] int code(int status) const {
    const int ended = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    if (ended_by_ != 0) return 128 + ended_by_;
    if (lost_host_) return static_cast<int>(ExitCode::communication);
    // Until a rank has started to train, SIGUSR1 ends it (and mpirun, while it starts).
    if (asked_ && trains_ && ended == 128 + SIGUSR1) {
      say("the run had not begun: there was nothing to save");
      return static_cast<int>(ExitCode::preempted);
    }
    return ended;
  }

  pid_t mpirun_;
  bool trains_, asked_ = false;
  int ended_by_ = 0;
  std::optional<Clock::time_point> request_, ended_at_;
  bool had_ranks_ = false, lost_host_ = false;
  std::optional<Clock::time_point> alone_since_;  // since when no rank is seen
  MpirunOutput output_;
};

}  // namespace

bool is_launch(const std::vector<std::string>& arguments) {
  if (arguments.empty() || arguments[0] != "launch") return false;
  return arguments.size() < 2 || !arguments[1].starts_with("--help");
}

int launch(const std::vector<std::string>& arguments) {
  try {
    if (arguments.size() == 2 && arguments[1] == describe_host_option) return describe_host();
    ::signal(SIGCHLD, SIG_DFL);
    const sigset_t taken = signals_to_take();
    sigset_t before;
    ::sigprocmask(SIG_BLOCK, &taken, &before);
    const Job job = job_of(arguments, before);
    ::prctl(PR_SET_CHILD_SUBREAPER, 1);
    return Launched(start(job, before), job.trains).wait(taken);
  } catch (const Error& error) {
    log::error(error.line());
    return static_cast<int>(error.code());
  }
}

}  // namespace tessera::jobs
