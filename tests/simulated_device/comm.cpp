// SPDX-License-Identifier: Apache-2.0
// Whether MPI accepts device memory: a simulated device protects its pages, so it does not.
#include "runtime/comm/cuda/aware.hpp"

namespace tessera {
bool mpi_takes_device_memory() { return false; }
}  // namespace tessera
