#pragma once
// What this machine has to compute on, in words for people.

#include <string>
#include <utility>
#include <vector>

namespace tessera::jobs {

/// Name and value, as doctor prints them: whether the CUDA backend is built in; the driver, devices and libraries
/// found. Loads the driver and opens the libraries where there are any, so a run does not ask.
[[nodiscard]] std::vector<std::pair<std::string, std::string>> gpu_info();

/// "avx512_bf16, amx_bf16": what the CPU has for products of bf16; "none" if it widens them.
[[nodiscard]] std::string cpu_bf16_instructions();

}  // namespace tessera::jobs
