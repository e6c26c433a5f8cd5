// SPDX-License-Identifier: Apache-2.0
// Which simulated devices there are.
#include <cstdlib>
#include <sstream>

#include "runtime/base/cuda/devices.hpp"

namespace tessera::cuda {

/// The devices whose uuids are in SIMULATED_GPUS, between commas; unset: one. SIMULATED_GPU_NAME is their name.
const Survey& survey() {
  static const Survey found = [] {
    Survey all{.devices = {}, .driver = 13000, .runtime = 13000, .why_none = ""};
    const char* const visible = std::getenv("SIMULATED_GPUS");
    std::istringstream uuids(visible != nullptr ? visible : "0");
    for (std::string uuid; std::getline(uuids, uuid, ',');) {
      const int index = static_cast<int>(all.devices.size());
      const char* const name = std::getenv("SIMULATED_GPU_NAME");
      all.devices.push_back({.index = index,
                             .name = name != nullptr ? name : "simulated device",
                             .bus_id = "none",
                             .uuid = uuid,
                             .major = 9});
      all.devices.back().multiprocessors = 1;
      all.devices.back().memory = std::size_t{1} << 33;
    }
    if (all.devices.empty()) all.why_none = "SIMULATED_GPUS is empty";
    return all;
  }();
  return found;
}
std::string why_no_device(int) { return "simulated"; }
const char* architectures() { return "none (simulated)"; }
std::string toolkit() { return "0.0"; }

}  // namespace tessera::cuda
