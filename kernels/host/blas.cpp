// SPDX-License-Identifier: Apache-2.0
// CBLAS on one thread, and its version.
#include "kernels/host/blas.hpp"

#include <cblas.h>
#include <dlfcn.h>

#include <limits>
#include <mutex>

#include "kernels/threads.hpp"
#include "runtime/base/error.hpp"

namespace tessera::kernels {

namespace {

template <class Function>
Function symbol(const char* name) {
  return reinterpret_cast<Function>(dlsym(RTLD_DEFAULT, name));
}

/// Resolved by dlsym, not linked, so that any CBLAS works.
struct Library {
  Library() {
    if (auto set = symbol<void (*)(int)>("openblas_set_num_threads")) set(1);
    else if (auto mkl = symbol<void (*)(int)>("MKL_Set_Num_Threads")) mkl(1);
    else if (auto blis = symbol<void (*)(long)>("bli_thread_set_num_threads")) blis(1);
    const auto parallel = symbol<int (*)()>("openblas_get_parallel");
    one_at_a_time = parallel && parallel() == 0;
  }
  /// The serial OpenBLAS takes its buffers without a lock: concurrent calls give wrong results (seen with Debian's
  /// 0.3.21, a few per thousand calls). Its pthread and OpenMP builds do not.
  bool one_at_a_time = false;
  std::mutex mutex;
};

Library& library() {
  static Library one;
  return one;
}

int blas_int(std::int64_t n) {
  TESSERA_ASSERT(n >= 0 && n <= std::numeric_limits<int>::max(), "extent %ld is beyond CBLAS", n);
  return static_cast<int>(n);
}

}  // namespace

template <class T>
void host::gemm_serial(const GemmShape& s, T alpha, const T* a, const T* b, T beta, T* c) {
  Library& blas = library();
  if (s.m == 0 || s.n == 0) return;
  const auto ta = s.trans_a ? CblasTrans : CblasNoTrans, tb = s.trans_b ? CblasTrans : CblasNoTrans;
  const int m = blas_int(s.m), n = blas_int(s.n), k = blas_int(s.k);
  // CBLAS requires strides of at least 1, also for empty matrices.
  const auto ld = [](std::int64_t stride) { return blas_int(stride > 0 ? stride : 1); };
  std::unique_lock<std::mutex> alone;
  if (blas.one_at_a_time) alone = std::unique_lock(blas.mutex);
  if constexpr (sizeof(T) == sizeof(float)) {
    cblas_sgemm(CblasRowMajor, ta, tb, m, n, k, alpha, a, ld(s.lda), b, ld(s.ldb), beta, c, ld(s.ldc));
  } else {
    cblas_dgemm(CblasRowMajor, ta, tb, m, n, k, alpha, a, ld(s.lda), b, ld(s.ldb), beta, c, ld(s.ldc));
  }
}
template void host::gemm_serial<float>(const GemmShape&, float, const float*, const float*, float, float*);
template void host::gemm_serial<double>(const GemmShape&, double, const double*, const double*, double, double*);

std::string blas_version() {
  library();
  const auto config = symbol<char* (*)()>("openblas_get_config");
  if (!config) return symbol<void (*)(int)>("MKL_Set_Num_Threads") ? "MKL" : "CBLAS of unknown make";
  // "OpenBLAS 0.3.21 NO_LAPACKE DYNAMIC_ARCH … Zen MAX_THREADS=64": the first two words.
  const std::string all = config();
  const std::string name = all.substr(0, all.find(' ', all.find(' ') + 1));
  const auto parallel = symbol<int (*)()>("openblas_get_parallel");
  const std::string core = blas_kernel();
  const int kind = parallel ? parallel() : -1;
  const char* flavour = kind == 0 ? "serial" : kind == 1 ? "pthread" : kind == 2 ? "openmp" : "of unknown flavour";
  return strfmt("%s %s, kernel %s", name.c_str(), flavour, core.empty() ? "unknown" : core.c_str());
}

std::string blas_kernel() {
  const auto core = symbol<char* (*)()>("openblas_get_corename");
  return core ? core() : "";
}

}  // namespace tessera::kernels
