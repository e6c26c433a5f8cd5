// SPDX-License-Identifier: Apache-2.0
// Candidates for a GEMM, and their timing, one run of each after the other.
#include <cublasLt.h>
#include <cuda_runtime.h>

#include "kernels/cuda/gemm_candidates.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <limits>

#include "runtime/base/cuda/check.hpp"

namespace tessera::kernels::cuda {
namespace {

constexpr int full_rounds = 3, more_rounds = 4;
constexpr std::size_t finalists = 8;
constexpr int max_proposals = 32;
constexpr float never = std::numeric_limits<float>::infinity();

cublasStatus_t issue(const GemmCall& call, const CublasGemm& gemm, const cublasLtMatmulAlgo_t& algorithm) {
  const GemmArgs& args = call.args;
  set_bias(call, gemm);
  const auto alpha = static_cast<float>(args.alpha), beta = static_cast<float>(args.beta);
  const void* const old = args.addend ? args.addend.data : args.c.data;
  return gemm_library().matmul(call.handle, gemm.operation, &alpha, args.b.data, gemm.first, args.a.data, gemm.second,
                               &beta, old, gemm.result, args.c.data, gemm.result, &algorithm, call.workspace,
                               gemm_workspace_bytes, call.stream);
}

/// Two CUDA events that time what is issued between them.
class Clock {
 public:
  Clock() {
    TESSERA_CUDA(cudaEventCreate(&start_));
    TESSERA_CUDA(cudaEventCreate(&stop_));
  }
  ~Clock() {
    for (const cudaEvent_t event : {start_, stop_})
      if (event) TESSERA_CUDA_QUIETLY(cudaEventDestroy(event));
  }
  Clock(const Clock&) = delete;
  Clock& operator=(const Clock&) = delete;
  /// Milliseconds of a run; infinity if the library refuses the algorithm.
  float measure(const GemmCall& call, const CublasGemm& gemm, const cublasLtMatmulAlgo_t& algorithm) {
    TESSERA_CUDA(cudaMemsetAsync(call.workspace, 0, gemm_workspace_bytes, call.stream));
    TESSERA_CUDA(cudaEventRecord(start_, call.stream));
    const cublasStatus_t status = issue(call, gemm, algorithm);
    if (is_refusal(status)) return never;
    check_gemm(status, "cublasLtMatmul", gemm.plan);
    TESSERA_CUDA(cudaEventRecord(stop_, call.stream));
    TESSERA_CUDA(cudaEventSynchronize(stop_));
    float milliseconds = 0;
    TESSERA_CUDA(cudaEventElapsedTime(&milliseconds, start_, stop_));
    return milliseconds;
  }

 private:
  cudaEvent_t start_ = nullptr, stop_ = nullptr;
};

bool is_among(const std::vector<cublasLtMatmulAlgo_t>& algorithms, const cublasLtMatmulAlgo_t& one) {
  return std::ranges::any_of(algorithms, [&](const auto& other) { return bytes_of(other) == bytes_of(one); });
}

/// Appends what the library proposes under this limit of workspace, but for what is there already or needs more than
/// there is.
cublasStatus_t propose(const GemmCall& call, const CublasGemm& gemm, std::size_t limit,
                       std::vector<cublasLtMatmulAlgo_t>& proposed) {
  const GemmLibrary& library = gemm_library();
  set_bias(call, gemm);
  const auto set_limit = [&](std::size_t bytes) {
    check_gemm(library.preference_set(gemm.preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &bytes, sizeof bytes),
               "MAX_WORKSPACE_BYTES", gemm.plan);
  };
  std::array<cublasLtMatmulHeuristicResult_t, max_proposals> found;
  int answered = 0;
  set_limit(limit);
  const cublasStatus_t status = library.heuristic(call.handle, gemm.operation, gemm.first, gemm.second, gemm.result,
                                                  gemm.result, gemm.preference, max_proposals, found.data(), &answered);
  set_limit(gemm_workspace_bytes);
  for (int i = 0; i < answered; ++i) {
    const cublasLtMatmulHeuristicResult_t& one = found[static_cast<std::size_t>(i)];
    if (one.state == CUBLAS_STATUS_SUCCESS && one.workspaceSize <= gemm_workspace_bytes &&
        !is_among(proposed, one.algo))
      proposed.push_back(one.algo);
  }
  return status;
}

[[noreturn]] void throw_no_algorithm(cublasStatus_t status, const GemmPlan& plan) {
  throw Error(ExitCode::internal, strfmt("cuBLASLt has no algorithm (%s)", gemm_library().status_string(status)),
              "GEMM " + str(plan), "Pad the model's odd sizes, or use another library version");
}

/// A candidate that the library has not refused.
struct Runner {
  std::size_t number;
  float least = never;
};

/// One run of each candidate. Removes those that are refused.
void run_round(std::vector<std::vector<Runner>>& gemms, const TimeOf& time_of, bool counts) {
  std::size_t most = 0;
  for (const auto& runners : gemms) most = std::max(most, runners.size());
  std::vector<std::vector<Runner>> left(gemms.size());
  for (std::size_t i = 0; i < most; ++i)
    for (std::size_t g = 0; g < gemms.size(); ++g) {
      if (i >= gemms[g].size()) continue;
      Runner runner = gemms[g][i];
      const float time = time_of(g, runner.number);
      if (time == never) continue;
      if (counts) runner.least = std::min(runner.least, time);
      left[g].push_back(runner);
    }
  gemms = std::move(left);
}

}  // namespace

void set_bias(const GemmCall& call, const CublasGemm& gemm) {
  if (gemm.plan.bias)
    check_gemm(
        gemm_library().desc_set(gemm.operation, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &call.args.bias.data, sizeof(void*)),
        "BIAS_POINTER", gemm.plan);
}

void run(const GemmCall& call, const CublasGemm& gemm, const cublasLtMatmulAlgo_t& algorithm) {
  check_gemm(issue(call, gemm, algorithm), "cublasLtMatmul", gemm.plan);
}

cublasLtMatmulAlgo_t proposal(const GemmCall& call, const CublasGemm& gemm) {
  std::vector<cublasLtMatmulAlgo_t> proposed;
  const cublasStatus_t status = propose(call, gemm, gemm_workspace_bytes, proposed);
  if (proposed.empty()) throw_no_algorithm(status, gemm.plan);
  return proposed.front();
}

std::vector<cublasLtMatmulAlgo_t> candidates(const GemmCall& call, const CublasGemm& gemm) {
  std::vector<cublasLtMatmulAlgo_t> proposed;
  cublasStatus_t status = CUBLAS_STATUS_SUCCESS;
  for (const std::size_t limit : {gemm_workspace_bytes, std::size_t{0}, 8 * gemm_workspace_bytes})
    status = propose(call, gemm, limit, proposed);
  if (proposed.empty()) throw_no_algorithm(status, gemm.plan);
  return proposed;
}

void share_algorithms(std::vector<GemmContest>& contests, const Takes& takes) {
  const auto fits = [](const GemmPlan& from, const GemmPlan& to) {
    return from.first_transposed == to.first_transposed && from.second_transposed == to.second_transposed &&
           from.operands == to.operands && from.result == to.result && from.bias == to.bias &&
           from.first_alignment <= to.first_alignment && from.second_alignment <= to.second_alignment &&
           from.result_alignment <= to.result_alignment;
  };
  std::vector<std::size_t> own;
  for (const GemmContest& contest : contests) own.push_back(contest.algorithms.size());
  for (GemmContest& to : contests)
    for (std::size_t i = 0; i < contests.size(); ++i) {
      const GemmContest& from = contests[i];
      if (&from == &to || !fits(from.gemm->plan, to.gemm->plan)) continue;
      for (std::size_t k = 0; k < own[i]; ++k)
        if (!is_among(to.algorithms, from.algorithms[k]) && takes(to, from.algorithms[k]))
          to.algorithms.push_back(from.algorithms[k]);
    }
}

std::vector<Fastest> fastest(const std::vector<GemmContest>& contests) {
  Clock clock;
  std::vector<std::size_t> counts;
  for (const GemmContest& contest : contests) counts.push_back(contest.algorithms.size());
  const auto time_of = [&](std::size_t g, std::size_t candidate) {
    return clock.measure(contests[g].call, *contests[g].gemm, contests[g].algorithms[candidate]);
  };
  std::vector<Fastest> best = measure_in_turns(counts, time_of);
  for (std::size_t g = 0; g < best.size(); ++g)
    if (best[g].milliseconds == never)
      throw Error(ExitCode::internal, strfmt("cuBLASLt refuses all %zu of its algorithms", counts[g]),
                  "GEMM " + str(contests[g].gemm->plan), "Use --gemm_choice heuristic, or another library version");
  return best;
}

bool is_refusal(cublasStatus_t status) {
  return status == CUBLAS_STATUS_NOT_SUPPORTED || status == CUBLAS_STATUS_INVALID_VALUE ||
         status == CUBLAS_STATUS_ARCH_MISMATCH;
}

std::vector<Fastest> measure_in_turns(const std::vector<std::size_t>& num_candidates, const TimeOf& time_of) {
  std::vector<std::vector<Runner>> gemms(num_candidates.size());
  for (std::size_t g = 0; g < gemms.size(); ++g)
    for (std::size_t i = 0; i < num_candidates[g]; ++i) gemms[g].push_back({i});
  for (int round = 0; round < full_rounds + more_rounds; ++round) {
    run_round(gemms, time_of, round > 0);
    if (round < full_rounds - 1) continue;
    for (auto& runners : gemms) {
      std::ranges::stable_sort(runners, {}, &Runner::least);
      if (runners.size() > finalists) runners.resize(finalists);
    }
  }
  std::vector<Fastest> best;
  for (const auto& runners : gemms)
    best.push_back(runners.empty() ? Fastest{0, never} : Fastest{runners[0].number, runners[0].least});
  return best;
}

AlgorithmBytes bytes_of(const cublasLtMatmulAlgo_t& algorithm) { return std::bit_cast<AlgorithmBytes>(algorithm); }

std::optional<cublasLtMatmulAlgo_t> algorithm_of(const AlgorithmBytes& bytes, cublasLtHandle_t handle,
                                                 const CublasGemm& gemm) {
  const auto algorithm = std::bit_cast<cublasLtMatmulAlgo_t>(bytes);
  cublasLtMatmulHeuristicResult_t said{};
  const cublasStatus_t status = gemm_library().algorithm_check(handle, gemm.operation, gemm.first, gemm.second,
                                                               gemm.result, gemm.result, &algorithm, &said);
  const bool is_taken = status == CUBLAS_STATUS_SUCCESS && said.workspaceSize <= gemm_workspace_bytes;
  return is_taken ? std::optional(algorithm) : std::nullopt;
}

}  // namespace tessera::kernels::cuda
