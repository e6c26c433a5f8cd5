// SPDX-License-Identifier: Apache-2.0
#pragma once
// What mpirun, srun and other launchers say in environment variables before MPI_Init. Hints: MPI has the last word.

namespace tessera {

struct LauncherEnvironment {
  int rank = 0;
  int size = 1;                    // ranks of the job
  int local_size = 0;              // ranks on this node; 0: not said
  const char* size_variable = "";  // that `size` was read from; "": none
};

[[nodiscard]] LauncherEnvironment launcher_environment();

}  // namespace tessera
