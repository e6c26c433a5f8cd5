// SPDX-License-Identifier: Apache-2.0
// Choice of a rank's device from a survey. Pure.
#include "runtime/base/cuda/devices.hpp"
#include "runtime/base/error.hpp"

namespace tessera::cuda {

std::string refusal(const DeviceProperties& device) {
  if (device.major >= 8) return {};
  return strfmt("GPU %d (%s) has compute capability %d.%d; Tessera needs 8.0 (Ampere) or newer", device.index,
                device.name.c_str(), device.major, device.minor);
}

bool usable(const Survey& survey, int node_rank, int node_size, Sharing sharing) {
  const int count = static_cast<int>(survey.devices.size());
  if (count == 0 || (sharing == Sharing::one_each && count < node_size)) return false;
  return refusal(survey.devices[static_cast<std::size_t>(node_rank % count)]).empty();
}

Device choose(const Survey& survey, int node_rank, int node_size, Sharing sharing) {
  const int count = static_cast<int>(survey.devices.size());
  if (count == 0)
    throw Error(ExitCode::usage, "--backend cuda finds no GPU: " + survey.why_none, {},
                "`tessera doctor` shows what is there; --backend cpu does without");
  if (sharing == Sharing::one_each && count < node_size)
    throw Error(ExitCode::usage, strfmt("%d ranks on this node, but %d GPU%s", node_size, count, count == 1 ? "" : "s"),
                "--comm nccl", "Start one rank per GPU, or let ranks share with --comm mpi");
  const DeviceProperties& mine = survey.devices[static_cast<std::size_t>(node_rank % count)];
  if (const std::string why = refusal(mine); !why.empty())
    throw Error(ExitCode::usage, why, {}, "Hide it with CUDA_VISIBLE_DEVICES, or use --backend cpu");
  return {Device::Kind::cuda, mine.index};
}

}  // namespace tessera::cuda
