// SPDX-License-Identifier: Apache-2.0
#pragma once
// What this machine computes on, as `tessera doctor` prints it.

#include <string>
#include <utility>
#include <vector>

namespace tessera::jobs {

/// Name and value: whether the CUDA backend is built in; the driver, GPUs and libraries found. Loads the driver and
/// opens the libraries, which a run on the CPU must not do.
[[nodiscard]] std::vector<std::pair<std::string, std::string>> gpu_info();

/// The CPU's bf16 dot-product instructions: "avx512_bf16, amx_bf16", or "none".
[[nodiscard]] std::string cpu_bf16_instructions();

}  // namespace tessera::jobs
