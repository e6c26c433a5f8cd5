// What MPI says of device memory where the device is simulated: its pages are closed to MPI.
#include "runtime/comm/cuda/aware.hpp"

namespace tessera {
bool mpi_takes_device_memory() { return false; }
}  // namespace tessera
