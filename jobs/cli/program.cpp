// SPDX-License-Identifier: Apache-2.0
// Runs a command and prints errors, each once. An error is found before MPI starts (by every process), by all ranks
// (rank 0 prints it, all exit with its code), or by one rank alone (World::abort).
#include "jobs/cli/program.hpp"

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <new>
#include <thread>

#include "jobs/bench/bench.hpp"
#include "jobs/cli/commands/commands.hpp"
#include "jobs/cli/commands/launch.hpp"
#include "jobs/cli/options/docs_generator.hpp"
#include "jobs/cli/session/progress.hpp"
#include "jobs/cli/session/setup.hpp"
#include "jobs/cli/session/signals.hpp"
#include "jobs/cli/session/versions.hpp"
#include "kernels/threads.hpp"
#include "runtime/base/log.hpp"
#include "runtime/comm/launcher_environment.hpp"

namespace tessera::jobs {

namespace {

bool under_mpi_launcher() { return std::getenv("OMPI_COMM_WORLD_SIZE") != nullptr && launcher_environment().size > 1; }

/// Several errors are printed on a line each.
void print(const Error& error) {
  if (const auto* all = dynamic_cast<const SeveralErrors*>(&error)) {
    for (const std::string& line : all->lines) log::error(line);
  } else {
    log::error(error.line());
  }
}

/// mpirun ends all ranks once one has exited with another code than 0, and then drops what they printed and it has not
/// read yet.
constexpr std::chrono::milliseconds time_to_pass_output_on{300};

int code_of(const Error& error) { return static_cast<int>(error.code()); }

/// For an error that every process finds before MPI starts: rank 0 prints it. The others wait, because some launchers
/// kill all processes when the first one exits.
int print_on_rank_0(const Error& error) {
  if (launcher_environment().rank == 0) {
    print(error);
  } else {
    std::this_thread::sleep_for(time_to_pass_output_on);
  }
  return code_of(error);
}

/// For an error on the command line: under mpirun it starts MPI, so that all ranks exit after rank 0 has printed.
int exit_on_all_ranks(const Error& error) {
  if (!under_mpi_launcher()) return print_on_rank_0(error);
  try {
    WorldOptions options;
    options.comm = WorldOptions::Comm::mpi;
    const std::unique_ptr<World> world = bootstrap(options);
    if (world->rank() == 0) {
      print(error);
      std::this_thread::sleep_for(time_to_pass_output_on);
    }
    world->barrier();
  } catch (const Error&) { return print_on_rank_0(error); }
  return code_of(error);
}

bool print_information(const Invocation& invocation) {
  const Options& options = invocation.options;
  std::string text;
  if (options.flag("help") || options.flag("help_all"))
    text = help_text(find_command(invocation.command), options.flag("help_all"), invocation.stage);
  else if (options.flag("version")) text = version_text();
  else if (options.flag("man")) text = man_page(program_version());
  else if (options.flag("schema")) text = json_schema();
  else if (options.flag("help_markdown")) text = markdown();
  else return false;
  if (launcher_environment().rank == 0) std::fputs(text.c_str(), stdout);
  return true;
}

void set_output(const Options& options) {
  const std::string level = options.text("log_level");
  const bool json = (options.commands & for_inference) != 0 && options.flag("json");  // nothing else on stdout
  log::set_level(level == "error" || level == "critical"               ? log::Level::error
                 : level == "warning" || options.flag("quiet") || json ? log::Level::warning
                                                                       : log::Level::info);
  set_progress_style(progress_style(options));
}

/// W024, once the level of output and the rank are known: options that were accepted and change nothing. `config` lists
/// them beside the others.
void warn_of_options_without_effect(const Invocation& invocation) {
  if (invocation.command == "config") return;
  for (const std::string& text : invocation.options.without_effect) log::warn(24, text);
}

int run_with_world(const Call& call, World& world) {
  try {
    (void)kernels::isa();  // throws if the build needs an instruction set that this CPU lacks
    const std::string& command = call.invocation.command;
    if (command == "train") return train_command(call, world);
    if (command == "checkpoint") return checkpoint_command(call, world);
    if (command == "generate") generate_command(call, world);
    else if (command == "eval") eval_command(call, world);
    else if (command == "bench") bench_command(call, world);
    else if (command == "convert") convert_command(call, world);
    else if (command == "tokenize") tokenize_command(call, world);
    else doctor_command(call, world);
    return static_cast<int>(ExitCode::ok);
  } catch (const Error& error) {
    if (error.code() == ExitCode::communication) world.abort(error);
    if (world.rank() == 0) print(error);
    world.barrier();
    return code_of(error);
  } catch (const std::bad_alloc&) {
    world.abort(Error(ExitCode::does_not_fit, "out of memory", "rank " + std::to_string(world.rank()),
                      "Lower per_device_train_batch_size or shard more; tessera plan prints what fits"));
  } catch (const std::exception& failure) {
    world.abort(Error(ExitCode::internal, failure.what(), "rank " + std::to_string(world.rank()),
                      "This is a bug in tessera: please report it"));
  }
  return static_cast<int>(ExitCode::internal);  // not reached: abort does not return
}

int start_and_run(const Call& call) {
  std::unique_ptr<World> world;
  try {
    WorldOptions options = world_options(call.options());
    if (call.invocation.command == "train" || call.invocation.command == "generate" ||
        call.invocation.command == "eval")
      options.shared_bytes =
          shared_bytes(call.options(), launcher_environment().size, launcher_environment().local_size);
    world = bootstrap(options);
  } catch (const Error& error) { return print_on_rank_0(error); }
  log::set_rank(world->rank(), world->size(), world->host());
  set_output(call.options());
  warn_of_options_without_effect(call.invocation);
  const int code = run_with_world(call, *world);
  if (code != 0 && world->rank() == 0 && world->size() > 1)
    std::this_thread::sleep_for(time_to_pass_output_on);  // the other ranks end after rank 0 does
  return code;
}

int dispatch(const Call& call) {
  const std::string& command = call.invocation.command;
  if (command == "train") install_preemption_handlers();  // before MPI: a request may come while the job starts
  for (const char* needs_mpi : {"train", "generate", "eval", "bench", "doctor", "convert", "checkpoint", "tokenize"})
    if (command == needs_mpi) return start_and_run(call);
  // The other commands need one process: under a launcher, rank 0.
  if (launcher_environment().rank != 0) return static_cast<int>(ExitCode::ok);
  set_output(call.options());
  warn_of_options_without_effect(call.invocation);
  try {
    if (command == "plan") plan_command(call);
    else if (command == "config") config_command(call);
    else if (command == "inspect") inspect_command(call);
    else if (command == "report") report_command(call);
    else if (command == "job-script") job_script_command(call);
    else completion_command(call);
    return static_cast<int>(ExitCode::ok);
  } catch (const Error& error) {
    print(error);
    return code_of(error);
  } catch (const std::bad_alloc&) {
    log::error("out of memory");
    return static_cast<int>(ExitCode::does_not_fit);
  } catch (const std::exception& failure) {
    log::error(std::string(failure.what()) + ". This is a bug in tessera: please report it");
    return static_cast<int>(ExitCode::internal);
  }
}

}  // namespace

int run_program(const std::vector<std::string>& arguments, char** environment) {
  const auto started = std::chrono::steady_clock::now();
  ignore_file_size_signal();
  if (is_launch(arguments)) return launch(arguments);
  log::set_rank(launcher_environment().rank, launcher_environment().size, "this node");  // until MPI starts
  Invocation invocation;
  try {
    invocation = parse_command_line(arguments, environment, check_options);
    if (print_information(invocation)) return static_cast<int>(ExitCode::ok);
    if (invocation.command.empty()) {
      if (arguments.empty()) {
        if (launcher_environment().rank == 0) std::fputs(help_text(nullptr, false).c_str(), stderr);
        return static_cast<int>(ExitCode::usage);
      }
      throw Error(ExitCode::usage, "no command", "command line", "Commands: " + command_names());
    }
  } catch (const Error& error) { return exit_on_all_ranks(error); }
  std::vector<std::string> line{"tessera"};
  line.insert(line.end(), arguments.begin(), arguments.end());
  return dispatch({invocation, line, started});
}

}  // namespace tessera::jobs
