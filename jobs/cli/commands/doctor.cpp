// `tessera doctor`: what was built, what is loaded, where the ranks sit, and what will hurt.
#include <sys/utsname.h>

#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>

#include "jobs/cli/commands/commands.hpp"
#include "jobs/cli/session/gpu_info.hpp"
#include "jobs/cli/session/host_info.hpp"
#include "jobs/cli/session/versions.hpp"
#include "kernels/threads.hpp"
#include "runtime/base/log.hpp"

namespace tessera::jobs {

namespace {

using Facts = std::vector<std::pair<std::string, std::string>>;

std::string cpu_name() {
  std::ifstream in("/proc/cpuinfo");
  for (std::string line; std::getline(in, line);) {
    if (line.rfind("model name", 0) == 0 && line.find(": ") != std::string::npos)
      return line.substr(line.find(": ") + 2);
  }
  return "unknown";
}

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "not set" : value;
}

Facts facts(World& world) {
  utsname system{};
  ::uname(&system);
  const HostMemory memory = host_memory(), shm = shared_memory();
  const kernels::Bf16Gemm bf16 = kernels::bf16_gemm();
  Facts all = {
      {"version", std::string(program_version()) + " (" + program_commit() + ")"},
      {"compiler", compiler()},
      {"system", std::string(system.sysname) + " " + system.release + " " + system.machine},
      {"cpu", cpu_name()},
      {"instruction set", std::string(kernels::name_of(kernels::isa()))},
      {"cpu bf16", cpu_bf16_instructions()},
      {"bf16 products", bf16.name + (bf16.skipped.empty() ? "" : " (" + bf16.skipped + ")")},
      {"mpi", mpi_version() + ", threads " + mpi_thread_level()},
      {"blas", kernels::blas_version() + (blas_library().empty() ? "" : ", " + blas_library())},
      {"blas threads", blas_is_serial() ? "serial build: one call at a time" : "held at one a call"},
      {"omp", "OMP_NUM_THREADS " + variable("OMP_NUM_THREADS") + ", OMP_PROC_BIND " + variable("OMP_PROC_BIND")},
      {"memory", human_bytes(static_cast<double>(memory.available)) + " free of " +
                     human_bytes(static_cast<double>(memory.total))},
      {"/dev/shm",
       human_bytes(static_cast<double>(shm.available)) + " free of " + human_bytes(static_cast<double>(shm.total))},
      {"ranks", strfmt("%d on %d node%s, transport %s", world.size(), world.node_count(),
                       world.node_count() == 1 ? "" : "s", name_of(world.topology().transport))}};
  if (world.rank() == 0)  // who speaks
    for (auto& fact : gpu_info()) all.push_back(std::move(fact));
  return all;
}

void warn_about(const ThreadAllocation& share) {
  if (blas_is_serial() && share.threads > 1)
    log::warn(
        22,
        "the serial build of OpenBLAS is loaded (" + blas_library() +
            "): it takes one call at a time, so the threads of a rank wait for each other; install the pthread build");
  if (share.overcommitted)
    log::warn(
        21,
        "ranks share cores: more threads than cores in the affinity masks; start fewer ranks, bind them to cores of "
        "their own, or lower --threads");
  const HostMemory shm = shared_memory();
  if (shm.total < (256u << 20)) {
    log::warn(23, "/dev/shm has " + human_bytes(static_cast<double>(shm.total)) +
                      ": the node transport keeps parameters and gradients there; use --comm mpi, or enlarge it");
  }
}

}  // namespace

int doctor_command(const Call& call, World& world) {
  const ThreadAllocation share = allocate_threads(world, 0);
  const Facts known = facts(world);
  const std::vector<std::string> places =
      world.gather(strfmt("rank %d on %s: cores %s, %d thread%s", world.rank(), world.host().c_str(),
                          cpu_list(share.cpus).c_str(), share.threads, share.threads == 1 ? "" : "s"));
  if (call.options().flag("json")) {
    nlohmann::ordered_json json;
    for (const auto& [name, value] : known) json[name] = value;
    json["bindings"] = places;
    log::info(json.dump(2));
  } else {
    for (const auto& [name, value] : known) log::info(strfmt("%-16s %s", name.c_str(), value.c_str()));
    for (const std::string& place : places) log::info(strfmt("%-16s %s", "binding", place.c_str()));
  }
  warn_about(share);
  return static_cast<int>(ExitCode::ok);
}

}  // namespace tessera::jobs
