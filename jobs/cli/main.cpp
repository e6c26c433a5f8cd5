// SPDX-License-Identifier: Apache-2.0
// The program `tessera`.
#include <unistd.h>

#include <cstdlib>
#include <filesystem>

#include "jobs/cli/program.hpp"
#include "jobs/cli/session/host_info.hpp"
#include "kernels/thread_binding.hpp"

namespace {

/// By default a thread of OpenMP that waits for another one spins for milliseconds. Where other processes run on the
/// same cores, it takes the time that the other thread needs. libgomp reads for how long (here some 50 µs, then the
/// thread sleeps) when it is loaded, before main: so the program sets it and starts itself again, once. It goes on as
/// it is if that is not possible, or if the environment has a setting of its own.
void bound_spinning(char** argv) {
  for (const char* name : {"OMP_WAIT_POLICY", "GOMP_SPINCOUNT"})
    if (std::getenv(name) != nullptr) return;
  std::error_code failed;
  const std::filesystem::path program = std::filesystem::read_symlink("/proc/self/exe", failed);
  if (failed || program.filename().string().starts_with("ld")) return;  // started by the dynamic loader, by hand
  ::setenv("GOMP_SPINCOUNT", "1000", 0);
  ::execv(program.c_str(), argv);
}

/// OpenMP, where it binds threads (OMP_PROC_BIND), binds the main thread to the first place as it is loaded. All
/// threads that are not OpenMP's, and the program that is started again, would have that core alone. OpenMP binds its
/// own threads one by one all the same.
void unbind_main_thread() { tessera::jobs::set_affinity(tessera::kernels::openmp_cpus()); }

}  // namespace

int main(int argc, char** argv) {
  unbind_main_thread();
  bound_spinning(argv);
  return tessera::jobs::run_program({argv + 1, argv + argc}, ::environ);
}
