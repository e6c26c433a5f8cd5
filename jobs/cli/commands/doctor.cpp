// SPDX-License-Identifier: Apache-2.0
// `tessera doctor`: the build, the libraries, the GPUs, the ranks' cores, a directory's file system, and warnings.
#include <sys/utsname.h>

#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>

#include "jobs/cli/commands/commands.hpp"
#include "jobs/cli/session/file_system.hpp"
#include "jobs/cli/session/gpu_info.hpp"
#include "jobs/cli/session/host_info.hpp"
#include "jobs/cli/session/resources.hpp"
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
  const kernels::Gemm16Bit bf16 = kernels::gemm_16bit(DType::bf16);
  Facts all = {
      {"version", std::string(program_version()) + " (" + program_commit() + ")"},
      {"compiler", compiler()},
      {"system", std::string(system.sysname) + " " + system.release + " " + system.machine},
      {"cpu", cpu_name()},
      {"instruction set", std::string(kernels::name_of(kernels::isa()))},
      {"cpu bf16", cpu_bf16_instructions()},
      {"bf16 gemm", bf16.name + (bf16.skipped.empty() ? "" : " (" + bf16.skipped + ")")},
      {"mpi", mpi_version() + ", threads " + mpi_thread_level()},
      {"blas", kernels::blas_version() + (blas_library().empty() ? "" : ", " + blas_library())},
      {"blas threads", blas_is_serial() ? "serial build: one call at a time" : "one per call"},
      {"omp", "OMP_NUM_THREADS " + variable("OMP_NUM_THREADS") + ", OMP_PROC_BIND " + variable("OMP_PROC_BIND")},
      {"memory", human_bytes(memory.available) + " free of " + human_bytes(memory.total)},
      {"/dev/shm", human_bytes(shm.available) + " free of " + human_bytes(shm.total)},
      {"ranks", strfmt("%d on %d node%s, transport %s", world.size(), world.node_count(),
                       world.node_count() == 1 ? "" : "s", name_of(world.topology().transport))}};
  if (world.rank() == 0)  // the rank that prints
    for (auto& fact : gpu_info()) all.push_back(std::move(fact));
  return all;
}

void warn_about_shared_memory() {
  const HostMemory shm = shared_memory();
  if (shm.total < (256u << 20)) {
    log::warn(23, "/dev/shm has " + human_bytes(shm.total) +
                      ": the node transport has parameters and gradients there; enlarge it, or use --comm mpi");
  }
}

}  // namespace

void doctor_command(const Call& call, World& world) {
  const ThreadAllocation share = allocate_threads(world, 0);
  Facts known = facts(world);
  if (call.options().given("dir"))
    world.run_on_rank_0([&] {  // the rank that prints
      for (auto& fact : file_system_facts(call.options().text("dir"))) known.push_back(std::move(fact));
    });
  kernels::set_threads(share.threads);
  const std::vector<RankBinding> ranks = gather_bindings(world);
  std::vector<std::string> bindings = world.gather(strfmt(
      "rank %d on %s: CPU%s %s, %d thread%s", world.rank(), world.host().c_str(), share.cpus.size() == 1 ? "" : "s",
      cpu_list(share.cpus).c_str(), share.threads, share.threads == 1 ? "" : "s"));
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) bindings[rank] += "; " + binding_text(ranks[rank]);
  if (call.options().flag("json")) {
    nlohmann::ordered_json json;
    for (const auto& [name, value] : known) json[name] = value;
    json["bindings"] = bindings;
    log::info(json.dump(2));
  } else {
    for (const auto& [name, value] : known) log::info(strfmt("%-16s %s", name.c_str(), value.c_str()));
    for (const std::string& binding : bindings) log::info(strfmt("%-16s %s", "binding", binding.c_str()));
  }
  warn_about_threads(share);
  warn_about_blas_kernel(world);
  warn_about_binding(ranks);
  warn_about_shared_memory();
}

}  // namespace tessera::jobs
