// Products on a device: one description and one algorithm for each plan, made at its first call and kept; one workspace for each stream. Later calls
// allocate nothing and wait for nothing.
#include <cublasLt.h>
#include <cuda_runtime.h>

#include "kernels/gemm.hpp"

#include <algorithm>
#include <limits>
#include <vector>

#include "kernels/cuda/gemm_choice.hpp"
#include "kernels/cuda/gemm_library.hpp"
#include "kernels/cuda/ops.hpp"
#include "runtime/base/cuda/check.hpp"

namespace tessera::kernels::cuda {
namespace {

constexpr int most_candidates = 16, timed_runs = 5;

/// "cuBLASLt 130100 on NVIDIA H200 sm_90": what a file of choices was made for.
std::string identity_of(int device) {
  cudaDeviceProp properties{};
  TESSERA_CUDA(cudaGetDeviceProperties(&properties, device));
  return strfmt("cuBLASLt %zu on %s sm_%d%d", gemm_library().version(), properties.name, properties.major, properties.minor);
}

struct Call {
  cublasLtHandle_t handle;
  const GemmArgs& args;
  cudaStream_t stream;
  void* workspace;
};

void run(const Call& call, const GemmProduct& product, const cublasLtMatmulAlgo_t& algorithm, void* result) {
  const auto alpha = static_cast<float>(call.args.alpha), beta = static_cast<float>(call.args.beta);
  check_gemm(gemm_library().matmul(call.handle, product.operation, &alpha, call.args.b.data, product.first, call.args.a.data,
                                   product.second, &beta, result, product.result, result, product.result, &algorithm,
                                   call.workspace, gemm_workspace_bytes, call.stream),
             "cublasLtMatmul", product.plan);
}

std::vector<cublasLtMatmulHeuristicResult_t> candidates(const Call& call, const GemmProduct& product, int count) {
  std::vector<cublasLtMatmulHeuristicResult_t> found(static_cast<std::size_t>(count));
  int answered = 0;
  const cublasStatus_t status =
      gemm_library().heuristic(call.handle, product.operation, product.first, product.second, product.result, product.result,
                               product.preference, count, found.data(), &answered);
  found.resize(static_cast<std::size_t>(answered));
  std::erase_if(found,
                [](const auto& c) { return c.state != CUBLAS_STATUS_SUCCESS || c.workspaceSize > gemm_workspace_bytes; });
  if (status != CUBLAS_STATUS_SUCCESS || found.empty())
    throw Error(ExitCode::internal, strfmt("cuBLASLt has no algorithm (%s)", gemm_library().status_string(status)),
                "product " + str(product.plan), "pad the model's odd sizes, or use another library version");
  return found;
}

/// A scope's events and scratch result: timing must not touch the real one, which a product may add to.
class Timing {
 public:
  explicit Timing(std::size_t bytes) {
    TESSERA_CUDA(cudaEventCreate(&start_));
    TESSERA_CUDA(cudaEventCreate(&stop_));
    TESSERA_CUDA(cudaMalloc(&scratch_, bytes));
    TESSERA_CUDA(cudaMemset(scratch_, 0, bytes));
  }
  ~Timing() {
    TESSERA_CUDA_QUIETLY(cudaFree(scratch_));
    TESSERA_CUDA_QUIETLY(cudaEventDestroy(start_));
    TESSERA_CUDA_QUIETLY(cudaEventDestroy(stop_));
  }
  Timing(const Timing&) = delete;
  Timing& operator=(const Timing&) = delete;
  /// Milliseconds of the fastest of some runs.
  float measure(const Call& call, const GemmProduct& product, const cublasLtMatmulAlgo_t& algorithm) {
    float best = std::numeric_limits<float>::infinity();
    for (int i = 0; i <= timed_runs; ++i) {
      TESSERA_CUDA(cudaEventRecord(start_, call.stream));
      run(call, product, algorithm, scratch_);
      TESSERA_CUDA(cudaEventRecord(stop_, call.stream));
      TESSERA_CUDA(cudaEventSynchronize(stop_));
      float milliseconds = 0;
      TESSERA_CUDA(cudaEventElapsedTime(&milliseconds, start_, stop_));
      if (i > 0) best = std::min(best, milliseconds);  // the first run loads the kernel
    }
    return best;
  }

 private:
  cudaEvent_t start_ = nullptr, stop_ = nullptr;
  void* scratch_ = nullptr;
};

cublasLtMatmulAlgo_t fastest(const Call& call, const GemmProduct& product) {
  const auto found = candidates(call, product, most_candidates);
  const auto bytes = static_cast<std::size_t>(product.plan.result_pitch * product.plan.n) * size_of(product.plan.result);
  Timing timing(bytes);
  std::size_t best = 0;
  float least = std::numeric_limits<float>::infinity();
  for (std::size_t i = 0; i < found.size(); ++i)
    if (const float time = timing.measure(call, product, found[i].algo); time < least) least = time, best = i;
  return found[best].algo;
}

/// What one device's products have. Lives until the process ends: the driver may be gone before destructors run.
struct DeviceProducts {
  explicit DeviceProducts(int device) : choices(identity_of(device)) {}
  cublasLtHandle_t handle = nullptr;
  GemmChoices choices;
  std::map<GemmPlan, std::unique_ptr<GemmProduct>> products;
  std::map<cudaStream_t, void*> workspaces;
};

struct Registry {
  std::mutex mutex;
  GemmSetting setting;
  std::map<int, DeviceProducts*> devices;
};
Registry& registry() {
  static auto* const instance = new Registry;
  return *instance;
}

DeviceProducts& products_of(Registry& all, int device) {
  DeviceProducts*& own = all.devices[device];
  if (own) return *own;
  auto made = std::make_unique<DeviceProducts>(device);
  check_gemm(gemm_library().create(&made->handle), "cublasLtCreate", {});
  if (!all.setting.file.empty()) made->choices.read(all.setting.file);
  own = made.release();
  return *own;
}

const GemmProduct& product_of(Registry& all, DeviceProducts& own, const Call& call, const GemmPlan& plan) {
  auto& slot = own.products[plan];
  if (slot) return *slot;
  auto product = std::make_unique<GemmProduct>(plan);
  static_assert(sizeof(AlgorithmBytes) == sizeof(cublasLtMatmulAlgo_t));
  if (plan.bias) {  // the heuristic looks at the pointer's alignment
    check_gemm(
        gemm_library().desc_set(product->operation, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &call.args.bias.data, sizeof(void*)),
        "BIAS_POINTER", plan);
  }
  if (const auto kept = own.choices.find(plan)) {
    std::copy_n(reinterpret_cast<const char*>(kept->data()), sizeof product->algorithm,
                reinterpret_cast<char*>(&product->algorithm));
  } else {
    product->algorithm = all.setting.timed ? fastest(call, *product) : candidates(call, *product, 1).front().algo;
    AlgorithmBytes bytes;
    std::copy_n(reinterpret_cast<const char*>(&product->algorithm), sizeof bytes, reinterpret_cast<char*>(bytes.data()));
    own.choices.keep(plan, bytes);
  }
  slot = std::move(product);
  return *slot;
}

/// A product without depth is beta·C, which is C or zeros.
void empty_product(const GemmArgs& args, const GemmPlan& plan, cudaStream_t stream) {
  TESSERA_ASSERT(!plan.bias && (args.beta == 0 || args.beta == 1), "an empty product with bias, or beta %g", args.beta);
  if (args.beta == 1) return;
  const std::size_t element = size_of(plan.result);
  TESSERA_CUDA(cudaMemset2DAsync(args.c.data, static_cast<std::size_t>(plan.result_pitch) * element, 0,
                                 static_cast<std::size_t>(plan.m) * element, static_cast<std::size_t>(plan.n), stream));
}

}  // namespace

void set_gemm(const GemmSetting& setting) {
  Registry& all = registry();
  const std::lock_guard lock(all.mutex);
  TESSERA_ASSERT(all.devices.empty(), "products have been chosen already");
  all.setting = setting;
}

void write_gemm_choices(const std::string& path) {
  int device = 0;
  TESSERA_CUDA(cudaGetDevice(&device));
  Registry& all = registry();
  const std::lock_guard lock(all.mutex);
  products_of(all, device).choices.write(path);
}

void gemm(const GemmArgs& args, StreamView stream) {
  TESSERA_ASSERT(stream.handle != nullptr, "a device product on the host's stream");
  TESSERA_ASSERT(args.a.dtype == args.b.dtype && (args.c.dtype == args.a.dtype || args.c.dtype == DType::f32), "%s by %s to %s",
                 name_of(args.a.dtype), name_of(args.b.dtype), name_of(args.c.dtype));
  TESSERA_ASSERT(!args.bias || args.bias.dtype == args.a.dtype, "bias of %s", name_of(args.bias.dtype));
  const GemmPlan plan = plan_gemm(args);
  const auto queue = static_cast<cudaStream_t>(stream.handle);
  if (plan.m == 0 || plan.n == 0) return;
  if (plan.k == 0) return empty_product(args, plan, queue);
  int device = 0;
  TESSERA_CUDA(cudaGetDevice(&device));
  Registry& all = registry();
  const std::lock_guard lock(all.mutex);
  DeviceProducts& own = products_of(all, device);
  void*& workspace = own.workspaces[queue];
  if (!workspace) TESSERA_CUDA(cudaMalloc(&workspace, gemm_workspace_bytes));
  const Call call{own.handle, args, queue, workspace};
  const GemmProduct& product = product_of(all, own, call, plan);
  if (plan.bias)
    check_gemm(gemm_library().desc_set(product.operation, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &args.bias.data, sizeof(void*)),
               "BIAS_POINTER", plan);
  run(call, product, product.algorithm, args.c.data);
}

}  // namespace tessera::kernels::cuda
