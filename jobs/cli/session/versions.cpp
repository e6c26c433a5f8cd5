// SPDX-License-Identifier: Apache-2.0
// The only file of jobs that includes mpi.h.
#include "jobs/cli/session/versions.hpp"

#include <mpi.h>

#include <filesystem>
#include <fstream>

#include "kernels/threads.hpp"
#include "runtime/base/device.hpp"
#include "runtime/base/error.hpp"
#include "tessera_build.hpp"

namespace tessera::jobs {

const char* program_version() { return TESSERA_BUILD_VERSION; }
const char* program_commit() { return TESSERA_BUILD_COMMIT; }
const char* cuda_status() { return "built in, last run on " TESSERA_BUILD_GPU; }
const char* compiler() { return TESSERA_BUILD_COMPILER; }

std::string mpi_version() {
  char text[MPI_MAX_LIBRARY_VERSION_STRING] = {};
  int length = 0;
  if (MPI_Get_library_version(text, &length) != MPI_SUCCESS) return "MPI of unknown version";
  std::string version(text, static_cast<std::size_t>(length));
  // "Open MPI v4.1.4, package: …": keep what is before the first comma or line end.
  version = version.substr(0, version.find_first_of(",\n"));
  const std::size_t v = version.find(" v");
  return v == std::string::npos ? version : version.erase(v + 1, 1);
}

std::string mpi_thread_level() {
  int ready = 0, level = 0;
  MPI_Initialized(&ready);
  if (ready == 0 || MPI_Query_thread(&level) != MPI_SUCCESS) return "not initialized";
  return level == MPI_THREAD_MULTIPLE     ? "multiple"
         : level == MPI_THREAD_SERIALIZED ? "serialized"
         : level == MPI_THREAD_FUNNELED   ? "funneled"
                                          : "single";
}

std::string blas_library() {
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    const std::size_t path = line.find('/');
    if (path == std::string::npos) continue;
    const std::string file = line.substr(path);
    const std::string name = std::filesystem::path(file).filename();
    if (name.rfind("libopenblas", 0) == 0 || name.rfind("libblas", 0) == 0 || name.rfind("libcblas", 0) == 0)
      return file;
  }
  return "";
}

bool blas_is_serial() { return kernels::blas_version().find(" serial") != std::string::npos; }

std::string version_line() {
  return std::string("tessera ") + program_version() + " (" + program_commit() + ") | " + mpi_version() + " | " +
         kernels::blas_version() + " | " + kernels::name_of(kernels::isa());
}

std::string version_text() {
  return std::string("tessera ") + program_version() + "\ncommit    " + program_commit() + "\ncompiler  " + compiler() +
         "\nMPI       " + mpi_version() + "\nBLAS      " + kernels::blas_version() +
         (blas_library().empty() ? "" : " (" + blas_library() + ")") + "\nISA       " +
         kernels::name_of(kernels::isa()) + "\nbackends  CPU; CUDA " + (cuda_built ? cuda_status() : "not built in") +
         "\nHDF5      built in\n";
}

}  // namespace tessera::jobs
