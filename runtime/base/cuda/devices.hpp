// SPDX-License-Identifier: Apache-2.0
#pragma once
// The CUDA devices of this machine, as data. Asking loads and initializes the driver; a run on the CPU never asks.

#include <cstddef>
#include <string>
#include <vector>

#include "runtime/base/device.hpp"

namespace tessera::cuda {

struct DeviceProperties {
  int index = 0;  // numbered as CUDA_VISIBLE_DEVICES orders them
  std::string name, bus_id;
  std::string uuid;  // of the GPU, or of its MIG instance: the same in every process, whatever is hidden from it
  int major = 0, minor = 0;  // compute capability
  int multiprocessors = 0;
  std::size_t memory = 0;  // bytes in all
};

/// The driver's answer. Without a device `why_none` says why; that is no error.
struct Survey {
  std::vector<DeviceProperties> devices;
  int driver = 0, runtime = 0;  // 13000 is 13.0; driver 0: there is none
  std::string why_none;
};

/// Asks the driver once per process; later calls return the same.
[[nodiscard]] const Survey& survey();

/// A device of the survey; null: it has none of that number.
[[nodiscard]] const DeviceProperties* properties_of(Device device);

/// Text for a status of cudaGetDeviceCount that means no device: 35, 34, 100 and others.
[[nodiscard]] std::string why_no_device(int status);

/// "" if this build's code runs on the device, else the reason: it is older than sm_80.
[[nodiscard]] std::string refusal(const DeviceProperties& device);

/// A rank among the ranks of its host.
struct HostRank {
  int rank = 0;
  std::vector<std::string> first_gpus;  // the uuid of the first GPU that each of these ranks sees; "" for none
};
enum class Sharing : unsigned char { one_each, shared };  // shared: ranks may share a device (--comm mpi)
/// The device for a rank: the first that it sees, if the ranks of its host see different first ones (the launcher has
/// given each rank its own, as --gpus-per-task does); else the one of its number among them. Throws Error (usage) if
/// there is no device, fewer devices than ranks, or one that is too old.
[[nodiscard]] Device choose(const Survey& survey, const HostRank& mine, Sharing sharing);

/// Makes it the calling thread's current device, which every thread that calls CUDA needs. Cheap if it already is.
void use(Device device);

/// "80-real;90a-real;90-virtual": the architectures that device code is compiled for. "13.0": the toolkit's version.
[[nodiscard]] const char* architectures();
[[nodiscard]] std::string toolkit();

}  // namespace tessera::cuda
