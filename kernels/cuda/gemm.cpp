// SPDX-License-Identifier: Apache-2.0
// GEMM on a device: our own kernel for up to 16 rows (gemm_few_rows.hpp), else cuBLASLt with one descriptor and one
// algorithm per plan, created at its first call and kept; one workspace per stream. Later calls allocate nothing and do
// not synchronize.
#include <cublasLt.h>
#include <cuda_runtime.h>

#include "kernels/gemm.hpp"

#include <cmath>
#include <mutex>

#include "kernels/cuda/gemm_candidates.hpp"
#include "kernels/cuda/gemm_few_rows.hpp"
#include "kernels/cuda/ops.hpp"
#include "runtime/base/cuda/check.hpp"

namespace tessera::kernels::cuda {
namespace {

/// "cuBLASLt 130100 on NVIDIA H200 sm_90": the identity that choices are valid for.
std::string identity_of(int device) {
  cudaDeviceProp properties{};
  TESSERA_CUDA(cudaGetDeviceProperties(&properties, device));
  return strfmt("cuBLASLt %zu on %s sm_%d%d", gemm_library().version(), properties.name, properties.major,
                properties.minor);
}

/// A GEMM's first call since the recording began, and the number of all.
struct RecordedCall {
  GemmArgs args;
  cudaStream_t stream;
  std::int64_t calls = 0;
};

/// State of one device's GEMMs. Lives until the process ends: the driver may be gone before destructors run.
struct GemmCache {
  explicit GemmCache(int device) : choices(identity_of(device)) {}
  cublasLtHandle_t handle = nullptr;
  GemmChoices choices;
  RefusedChoice refused = RefusedChoice::error;
  std::map<GemmPlan, std::unique_ptr<CublasGemm>> gemms;
  std::map<cudaStream_t, void*> workspaces;
  bool recording = false;
  std::map<GemmPlan, RecordedCall> recorded;
};

struct Registry {
  std::mutex mutex;
  std::map<int, GemmCache*> devices;
};
Registry& registry() {
  static auto* const instance = new Registry;
  return *instance;
}

/// Exclusive access to the GEMMs of the calling thread's device.
class DeviceGemms {
 public:
  DeviceGemms() : lock_(registry().mutex) {
    int device = 0;
    TESSERA_CUDA(cudaGetDevice(&device));
    GemmCache*& known = registry().devices[device];
    if (!known) {
      auto made = std::make_unique<GemmCache>(device);
      check_gemm(gemm_library().create(&made->handle), "cublasLtCreate", {});
      known = made.release();
    }
    own_ = known;
  }
  GemmCache* operator->() const { return own_; }
  [[nodiscard]] GemmCall call(const GemmArgs& args, cudaStream_t stream) const {
    void*& workspace = own_->workspaces[stream];
    if (!workspace) TESSERA_CUDA(cudaMalloc(&workspace, gemm_workspace_bytes));
    return {own_->handle, args, stream, workspace};
  }

 private:
  std::lock_guard<std::mutex> lock_;
  GemmCache* own_ = nullptr;
};

/// The known choice for a GEMM, if there is one that the library does not refuse.
std::optional<cublasLtMatmulAlgo_t> known_choice(const DeviceGemms& own, const CublasGemm& gemm) {
  const auto kept = own->choices.find(gemm.plan);
  if (!kept) return std::nullopt;
  const auto algorithm = algorithm_of(kept->algorithm, own->handle, gemm);
  if (algorithm) return algorithm;
  if (own->refused == RefusedChoice::error)
    throw Error(ExitCode::data, "cuBLASLt refuses the algorithm chosen for a GEMM", "GEMM " + str(gemm.plan),
                "Delete the file of --gemm_choice_file: GEMMs are timed again");
  own->choices.forget(gemm.plan);
  return std::nullopt;
}

const CublasGemm& gemm_of(const DeviceGemms& own, const GemmCall& call, const GemmPlan& plan) {
  auto& slot = own->gemms[plan];
  if (slot) return *slot;
  auto gemm = std::make_unique<CublasGemm>(plan);
  set_bias(call, *gemm);
  const auto known = known_choice(own, *gemm);
  gemm->algorithm = known ? *known : proposal(call, *gemm);
  slot = std::move(gemm);
  return *slot;
}

/// A GEMM with k = 0 is beta·C, which is C or zeros.
void zero_depth_gemm(const GemmArgs& args, const GemmPlan& plan, cudaStream_t stream) {
  TESSERA_ASSERT(!plan.bias && !args.addend && (args.beta == 0 || args.beta == 1),
                 "a GEMM with k = 0 and bias, addend or beta %g", args.beta);
  if (args.beta == 1) return;
  const std::size_t element = size_of(plan.result);
  TESSERA_CUDA(cudaMemset2DAsync(args.c.data, static_cast<std::size_t>(plan.result_pitch) * element, 0,
                                 static_cast<std::size_t>(plan.m) * element, static_cast<std::size_t>(plan.n), stream));
}

}  // namespace

void set_gemm_workspace(StreamView stream, std::byte* workspace) {
  const DeviceGemms own;
  const auto handle = static_cast<cudaStream_t>(stream.handle);
  if (workspace != nullptr) own->workspaces[handle] = workspace;
  else own->workspaces.erase(handle);
}

void record_gemms() {
  const DeviceGemms own;
  own->recording = true;
  own->recorded.clear();
}

std::size_t finish_recording_gemms(Timing timing) {
  const DeviceGemms own;
  std::vector<GemmContest> contests;
  for (const auto& [plan, recorded] : own->recorded) {
    if (timing == Timing::off || own->choices.find(plan)) continue;
    const GemmCall call = own.call(recorded.args, recorded.stream);
    const CublasGemm& gemm = *own->gemms.at(plan);
    contests.push_back({call, &gemm, candidates(call, gemm)});
  }
  share_algorithms(contests, [](const GemmContest& gemm, const cublasLtMatmulAlgo_t& algorithm) {
    return algorithm_of(bytes_of(algorithm), gemm.call.handle, *gemm.gemm).has_value();
  });
  const std::vector<Fastest> best = fastest(contests);
  for (std::size_t i = 0; i < best.size(); ++i) {
    CublasGemm& gemm = *own->gemms.at(contests[i].gemm->plan);
    gemm.algorithm = contests[i].algorithms[best[i].number];
    own->choices.keep(gemm.plan, {bytes_of(gemm.algorithm), std::llround(1e6 * best[i].milliseconds)});
  }
  own->recording = false;
  own->recorded.clear();
  return best.size();
}

std::vector<RecordedGemm> time_recorded_gemms() {
  const DeviceGemms own;
  std::vector<GemmContest> contests;
  std::vector<RecordedGemm> gemms;
  for (const auto& [plan, recorded] : own->recorded) {
    const CublasGemm& gemm = *own->gemms.at(plan);
    contests.push_back({own.call(recorded.args, recorded.stream), &gemm, {gemm.algorithm}});
    gemms.push_back({.name = str(plan), .flops = flops_of(plan), .calls = recorded.calls});
  }
  const std::vector<Fastest> times = fastest(contests);
  for (std::size_t i = 0; i < times.size(); ++i) gemms[i].seconds = 1e-3 * static_cast<double>(times[i].milliseconds);
  own->recording = false;
  own->recorded.clear();
  return gemms;
}

std::string gemm_choices() {
  const DeviceGemms own;
  return own->choices.text();
}

std::size_t apply_gemm_choices(const std::string& text, const std::string& from, RefusedChoice refused) {
  const DeviceGemms own;
  own->refused = refused;
  const std::size_t count = own->choices.take(text, from);
  for (const auto& [plan, gemm] : own->gemms)
    if (const auto known = known_choice(own, *gemm)) gemm->algorithm = *known;
  return count;
}

void gemm(const GemmArgs& args, StreamView stream) {
  TESSERA_ASSERT(stream.handle != nullptr, "a device GEMM on the host's stream");
  TESSERA_ASSERT(args.a.dtype == args.b.dtype && (args.c.dtype == args.a.dtype || args.c.dtype == DType::f32),
                 "%s by %s to %s", name_of(args.a.dtype), name_of(args.b.dtype), name_of(args.c.dtype));
  TESSERA_ASSERT(!args.bias || args.bias.dtype == args.a.dtype, "bias of %s", name_of(args.bias.dtype));
  const GemmPlan plan = plan_gemm(args);
  const auto queue = static_cast<cudaStream_t>(stream.handle);
  if (plan.m == 0 || plan.n == 0) return;
  if (plan.k == 0) return zero_depth_gemm(args, plan, queue);
  if (is_of_few_rows(plan)) return gemm_few_rows(args, stream);
  const DeviceGemms own;
  const GemmCall call = own.call(args, queue);
  const CublasGemm& gemm = gemm_of(own, call, plan);
  if (own->recording) ++own->recorded.try_emplace(plan, RecordedCall{args, queue}).first->second.calls;
  run(call, gemm, gemm.algorithm);
}

}  // namespace tessera::kernels::cuda
