// SPDX-License-Identifier: Apache-2.0
#pragma once
// Counts the calls and the FLOPs of kernels::gemm, which this executable defines before the kernels' library does
// (symbol interposition).

namespace tessera::test {

/// 2·m·n·k of every gemm since the last call of it; of grouped GEMMs on the host, and of the head's, too.
double take_gemm_flops();
/// How many calls since the last call of it.
int take_gemm_calls();

}  // namespace tessera::test
