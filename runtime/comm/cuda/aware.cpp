// SPDX-License-Identifier: Apache-2.0
#include "runtime/comm/cuda/aware.hpp"

#include <mpi.h>
#if __has_include(<mpi-ext.h>)
#include <mpi-ext.h>
#endif

namespace tessera {

bool mpi_takes_device_memory() {
#if defined(MPIX_CUDA_AWARE_SUPPORT) && MPIX_CUDA_AWARE_SUPPORT
  return MPIX_Query_cuda_support() == 1;
#else
  return false;  // Debian's Open MPI, and MPIs that do not say
#endif
}

}  // namespace tessera
