#pragma once
// Whether this CPU and Linux support the bf16 dot-product instructions that no instruction set (kernels::isa) includes.

#include <string>

namespace tessera::kernels::host {

/// "AMD EPYC 9654 96-Core Processor"; "this CPU" if it has no name.
[[nodiscard]] std::string cpu_name();
/// The reason why an instruction cannot be used; empty: it can. The AMX one asks Linux for the tile registers, which
/// all threads of the process then have.
[[nodiscard]] std::string avx512_bf16_missing();
[[nodiscard]] std::string amx_bf16_missing();

}  // namespace tessera::kernels::host
