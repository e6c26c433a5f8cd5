#pragma once
// What this CPU and Linux give of the instructions for products of bf16, beyond an instruction set (kernels::isa).

#include <string>

namespace tessera::kernels::host {

/// "AMD EPYC 9654 96-Core Processor"; "this CPU" where it has no name.
[[nodiscard]] std::string cpu_name();
/// Why not, in words; empty: they can be used. amx asks Linux for the process' tile registers, which all its threads
/// then have.
[[nodiscard]] std::string avx512_bf16_missing();
[[nodiscard]] std::string amx_bf16_missing();

}  // namespace tessera::kernels::host
