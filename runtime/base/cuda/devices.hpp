#pragma once
// Which CUDA devices there are, as data. Asking loads the driver and initialises it: a run on the host never asks.

#include <cstddef>
#include <string>
#include <vector>

#include "runtime/base/device.hpp"

namespace tessera::cuda {

struct DeviceProperties {
  int index = 0;  // as CUDA_VISIBLE_DEVICES leaves them
  std::string name, bus_id;
  int major = 0, minor = 0;  // compute capability
  int multiprocessors = 0;
  std::size_t memory = 0;  // bytes in all
};

/// What the driver answered. Without a device `why_none` is a sentence; that is an answer, not an error.
struct Survey {
  std::vector<DeviceProperties> devices;
  int driver = 0, runtime = 0;  // 13000 is 13.0; driver 0: there is none
  std::string why_none;
};

/// Asks once per process and remembers.
[[nodiscard]] const Survey& survey();

/// The sentence for what cudaGetDeviceCount answers where there is no device: 35, 34, 100 and others.
[[nodiscard]] std::string why_no_device(int status);

/// "" if this build's code runs on the device, else why not, by name: it is older than sm_80.
[[nodiscard]] std::string refusal(const DeviceProperties& device);

/// The device of a rank, by its number among the ranks of its node. `shared`: ranks may share one (--comm mpi). Throws
/// Error (usage) where there is no device, fewer than ranks, or one that is too old.
enum class Sharing : unsigned char { one_each, shared };
/// Whether choose() would return.
[[nodiscard]] bool usable(const Survey& survey, int node_rank, int node_size, Sharing sharing);
[[nodiscard]] Device choose(const Survey& survey, int node_rank, int node_size, Sharing sharing);

/// Makes it the calling thread's current device; each thread that calls CUDA has to. Cheap when it is already.
void use(Device device);

/// "80-real;90a-real;90-virtual": what device code was compiled for; "13.0": the toolkit's version.
[[nodiscard]] const char* architectures();
[[nodiscard]] std::string toolkit();

}  // namespace tessera::cuda
