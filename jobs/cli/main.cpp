// SPDX-License-Identifier: Apache-2.0
// The program `tessera`.
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <string>
#include <system_error>
#include <vector>

#include "jobs/cli/program.hpp"
#include "jobs/cli/session/blas_kernel.hpp"
#include "jobs/cli/session/host_info.hpp"
#include "kernels/thread_binding.hpp"

namespace {

/// By default a thread of OpenMP that waits for another one spins for milliseconds. Where other processes run on the
/// same cores, it takes the time that the other thread needs. libgomp reads for how long (here some 50 µs, then the
/// thread sleeps) when it is loaded. Sets it, unless the environment has a setting of its own; returns whether it did.
bool bound_spinning() {
  for (const char* name : {"OMP_WAIT_POLICY", "GOMP_SPINCOUNT"})
    if (std::getenv(name) != nullptr) return false;
  ::setenv("GOMP_SPINCOUNT", "1000", 0);
  return true;
}

/// Libraries read the environment as they are loaded, before main: what is set here takes effect as the program starts
/// itself again, once. It goes on as it is if that is not possible. The ranks of `launch` may run on other CPUs, and
/// choose for themselves.
void start_again_with_settings(const std::vector<std::string>& arguments, char** argv) {
  std::error_code failed;
  const std::filesystem::path program = std::filesystem::read_symlink("/proc/self/exe", failed);
  if (failed || program.filename().string().starts_with("ld")) return;  // started by the dynamic loader, by hand
  const bool kernel = (arguments.empty() || arguments[0] != "launch") && tessera::jobs::set_better_blas_kernel();
  if (bound_spinning() || kernel) ::execv(program.c_str(), argv);
  if (kernel) tessera::jobs::unset_better_blas_kernel();
}

/// OpenMP, where it binds threads (OMP_PROC_BIND), binds the main thread to the first place as it is loaded. All
/// threads that are not OpenMP's, and the program that is started again, would have that core alone. OpenMP binds its
/// own threads one by one all the same.
void unbind_main_thread() { tessera::jobs::set_affinity(tessera::kernels::openmp_cpus()); }

}  // namespace

int main(int argc, char** argv) {
  const std::vector<std::string> arguments{argv + 1, argv + argc};
  unbind_main_thread();
  start_again_with_settings(arguments, argv);
  return tessera::jobs::run_program(arguments, ::environ);
}
