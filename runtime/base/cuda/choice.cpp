// SPDX-License-Identifier: Apache-2.0
// Looks devices up in a survey, and chooses a rank's.
#include <algorithm>

#include "runtime/base/cuda/devices.hpp"
#include "runtime/base/error.hpp"

namespace tessera::cuda {

std::string refusal(const DeviceProperties& device) {
  if (device.major >= 8) return {};
  return strfmt("GPU %d (%s) has compute capability %d.%d; Tessera needs 8.0 (Ampere) or newer", device.index,
                device.name.c_str(), device.major, device.minor);
}

const DeviceProperties* properties_of(Device device) {
  const auto& all = survey().devices;
  const auto found = std::ranges::find(all, device.index, &DeviceProperties::index);
  return device.kind == Device::Kind::cuda && found != all.end() ? &*found : nullptr;
}

static bool all_differ(std::vector<std::string> gpus) {
  std::ranges::sort(gpus);
  return std::ranges::adjacent_find(gpus) == gpus.end();
}

Device choose(const Survey& survey, const HostRank& mine, Sharing sharing) {
  const int count = static_cast<int>(survey.devices.size()), ranks = static_cast<int>(mine.first_gpus.size());
  if (count == 0)
    throw Error(ExitCode::usage, "--backend cuda finds no GPU: " + survey.why_none, {},
                "`tessera doctor` shows what is there; --backend cpu does without");
  const bool has_own = all_differ(mine.first_gpus);
  if (!has_own && sharing == Sharing::one_each && count < ranks)
    throw Error(ExitCode::usage, strfmt("%d ranks on this node, but %d GPU%s", ranks, count, count == 1 ? "" : "s"),
                "--comm nccl", "Start one rank per GPU, or let ranks share with --comm mpi");
  const DeviceProperties& device = survey.devices[has_own ? 0 : static_cast<std::size_t>(mine.rank % count)];
  if (const std::string why = refusal(device); !why.empty())
    throw Error(ExitCode::usage, why, {}, "Hide it with CUDA_VISIBLE_DEVICES, or use --backend cpu");
  return {Device::Kind::cuda, device.index};
}

}  // namespace tessera::cuda
