// SPDX-License-Identifier: Apache-2.0
#pragma once
// Versions of the program and of what it was built with.

#include <string>

namespace tessera::jobs {

[[nodiscard]] const char* program_version();  // "0.1.0"
[[nodiscard]] const char* program_commit();   // "24e3a75" or "24e3a75-dirty"; "unknown" outside a git checkout
[[nodiscard]] const char* compiler();         // "GNU 12.2.0, Release"
/// "Open MPI 4.1.4"; asks the library, works before MPI_Init.
[[nodiscard]] std::string mpi_version();
/// "multiple", … of the initialized MPI; "not initialized".
[[nodiscard]] std::string mpi_thread_level();
/// The file that OpenBLAS was loaded from; "" if it is linked statically.
[[nodiscard]] std::string blas_library();
/// True for the serial build of OpenBLAS, which runs one call at a time.
[[nodiscard]] bool blas_is_serial();
/// One line: "tessera 0.1.0 (24e3a75) | Open MPI 4.1.4 | OpenBLAS … | avx512".
[[nodiscard]] std::string version_line();
/// How far CUDA, where it is built in, has been tried.
[[nodiscard]] const char* cuda_status();  // "built in, last run on NVIDIA H200 at 30ae471d, 2026-11-26" (docs/gpus.md)
/// What `--version` prints.
[[nodiscard]] std::string version_text();

}  // namespace tessera::jobs
