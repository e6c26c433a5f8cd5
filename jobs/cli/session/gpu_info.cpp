// SPDX-License-Identifier: Apache-2.0
#include "jobs/cli/session/gpu_info.hpp"

#include <fstream>
#include <sstream>

#include "jobs/cli/options/values.hpp"
#include "jobs/cli/session/versions.hpp"
#include "runtime/base/cuda/devices.hpp"
#include "runtime/base/cuda/library.hpp"
#include "runtime/base/error.hpp"
#include "runtime/comm/cuda/aware.hpp"
#include "runtime/comm/nccl/communicator.hpp"

namespace tessera::jobs {

namespace {

using Facts = std::vector<std::pair<std::string, std::string>>;

/// `Survey` is a template parameter so that a build without devices holds nothing of this.
template <class Survey>
void add_devices(Facts& facts, const Survey& survey) {
  facts.emplace_back("cuda driver", survey.driver == 0
                                        ? "none"
                                        : strfmt("for CUDA %d.%d", survey.driver / 1000, survey.driver % 1000 / 10));
  if (survey.devices.empty()) facts.emplace_back("gpu", "none: " + survey.why_none);
  for (const auto& gpu : survey.devices) {
    const std::string why_not = cuda::refusal(gpu);
    facts.emplace_back(strfmt("gpu %d", gpu.index),
                       why_not.empty() ? strfmt("%s, compute capability %d.%d, %d multiprocessors, ", gpu.name.c_str(),
                                                gpu.major, gpu.minor, gpu.multiprocessors) +
                                             human_bytes(gpu.memory) + ", " + gpu.bus_id
                                       : "refused: " + why_not);
  }
}

template <class Library>
std::string found(Library& library, const std::string& version) {
  return library.there() ? version + ", " + library.path() : "not found: " + library.why_not();
}

}  // namespace

Facts gpu_info() {
  Facts facts;
  if constexpr (cuda_built) {
    facts.emplace_back(
        "cuda", std::string(cuda_status()) + "; toolkit " + cuda::toolkit() + ", code for " + cuda::architectures());
    add_devices(facts, cuda::survey());
    facts.emplace_back("cublasLt", found(cuda::Library::cublaslt(), cuda::cublaslt_version()));
    facts.emplace_back("cudnn", found(cuda::Library::cudnn(), cuda::cudnn_version()));
    facts.emplace_back("nccl",
                       (nccl_built ? "" : "not built in; ") + found(cuda::Library::nccl(), cuda::nccl_version()));
    facts.emplace_back("mpi on devices",
                       mpi_takes_device_memory() ? "takes device pointers" : "staged through pinned host memory");
  } else {
    facts = {{"cuda", "not built in"}, {"nccl", "not built in"}};
  }
  return facts;
}

std::string cpu_bf16_instructions() {
  std::ifstream in("/proc/cpuinfo");
  std::string found;
  for (std::string line; std::getline(in, line);) {
    if (line.rfind("flags", 0) != 0) continue;
    std::istringstream flags(line);
    for (std::string flag; flags >> flag;)
      if (flag == "avx512_bf16" || flag == "amx_bf16") found += (found.empty() ? "" : ", ") + flag;
    break;
  }
  return found.empty() ? "none" : found;
}

}  // namespace tessera::jobs
