// SPDX-License-Identifier: Apache-2.0
#pragma once
// The algorithms that cuBLASLt offers for a GEMM, and their speed. The including source includes cublasLt.h and
// cuda_runtime.h.

#include <functional>
#include <optional>
#include <vector>

#include "kernels/cuda/gemm_choice.hpp"
#include "kernels/cuda/gemm_library.hpp"

namespace tessera::kernels::cuda {

/// A call with its handle, stream and workspace.
struct GemmCall {
  cublasLtHandle_t handle;
  const GemmArgs& args;
  cudaStream_t stream;
  void* workspace;
};

/// Passes the address of the call's bias, if any, to the library: heuristic and check look at its alignment.
void set_bias(const GemmCall& call, const CublasGemm& gemm);
/// Issues the call.
void run(const GemmCall& call, const CublasGemm& gemm, const cublasLtMatmulAlgo_t& algorithm);
/// The library's proposal: its first candidate that needs no more workspace than there is. Throws Error (internal) if
/// there is none.
[[nodiscard]] cublasLtMatmulAlgo_t proposal(const GemmCall& call, const CublasGemm& gemm);
/// What is worth timing: the library proposes at most eight algorithms, but others under another limit of workspace, so
/// that it is asked with several; the proposal comes first. Throws as proposal().
[[nodiscard]] std::vector<cublasLtMatmulAlgo_t> candidates(const GemmCall& call, const CublasGemm& gemm);
/// A GEMM and the algorithms to time for it, with a call on whose memory they run.
struct GemmContest {
  GemmCall call;
  const CublasGemm* gemm = nullptr;
  std::vector<cublasLtMatmulAlgo_t> algorithms;
};
/// Adds to each GEMM the algorithms of the others that have the same transpositions and types, and no more alignment,
/// if `takes` says that the library takes them for it.
using Takes = std::function<bool(const GemmContest& gemm, const cublasLtMatmulAlgo_t& algorithm)>;
void share_algorithms(std::vector<GemmContest>& contests, const Takes& takes);
struct Fastest {
  std::size_t number;  // of the algorithms
  float milliseconds;  // infinity: all are refused
};
/// The fastest algorithm of each GEMM, by measure_in_turns. Before each run the device writes over the workspace,
/// during which the host issues the run. Synchronizes. Skips algorithms that the library refuses to run; throws Error
/// (internal) with the plan if it refuses all of a GEMM.
[[nodiscard]] std::vector<Fastest> fastest(const std::vector<GemmContest>& contests);

/// The status means that the library does not run this candidate here; others may work.
[[nodiscard]] bool is_refusal(cublasStatus_t status);
/// Milliseconds of a run of a GEMM's candidate; infinity: refused, and not run again.
using TimeOf = std::function<float(std::size_t gemm, std::size_t candidate)>;
/// The candidate of each GEMM with the least time; the first of equals. Consecutive runs are of different GEMMs, as in
/// a step: each finds the L2 cache as another one has left it, and a change of the clock's rate is shared by all. A
/// first round, in which kernels are loaded, does not count; after two of all candidates the best eight of a GEMM run
/// four more.
[[nodiscard]] std::vector<Fastest> measure_in_turns(const std::vector<std::size_t>& num_candidates,
                                                    const TimeOf& time_of);

[[nodiscard]] AlgorithmBytes bytes_of(const cublasLtMatmulAlgo_t& algorithm);
/// Stored bytes as an algorithm; nothing if the library refuses it for this GEMM.
[[nodiscard]] std::optional<cublasLtMatmulAlgo_t> algorithm_of(const AlgorithmBytes& bytes, cublasLtHandle_t handle,
                                                               const CublasGemm& gemm);

}  // namespace tessera::kernels::cuda
