// SPDX-License-Identifier: Apache-2.0
#include "runtime/base/cuda/library.hpp"

#include <dlfcn.h>
#include <link.h>

#include <cublasLt.h>

#include <cstdlib>
#include <vector>

#include "runtime/base/error.hpp"

namespace tessera::cuda {

#define TESSERA_TEXT_OF(x) #x
#define TESSERA_TEXT(x) TESSERA_TEXT_OF(x)

Library& Library::cublaslt() {
  static Library library("libcublasLt.so." TESSERA_TEXT(CUBLAS_VER_MAJOR),
                         "cuBLAS of CUDA " TESSERA_TEXT(CUBLAS_VER_MAJOR) " (Debian, Ubuntu: libcublas-" TESSERA_TEXT(
                             CUBLAS_VER_MAJOR) "-0)");
  return library;
}

Library& Library::nccl() {
  static Library library("libnccl.so.2", "NCCL (Debian, Ubuntu: libnccl2), or use --comm mpi");
  return library;
}

Library& Library::cudnn() {
  static Library library("libcudnn.so.9",
                         "cuDNN 9 (Debian, Ubuntu: libcudnn9-cuda-" TESSERA_TEXT(CUBLAS_VER_MAJOR) ")");
  return library;
}

Library::Library(std::string soname, std::string package) : soname_(std::move(soname)), package_(std::move(package)) {}

bool Library::there() {
  std::call_once(once_, [this] {
    std::vector<std::string> candidates = {soname_};
    for (const char* root : {static_cast<const char*>(std::getenv("CUDA_HOME")), "/usr/local/cuda"})
      if (root != nullptr && *root != '\0')
        for (const char* folder : {"/lib64/", "/lib/"}) candidates.push_back(std::string(root) + folder + soname_);
    for (const std::string& candidate : candidates) {
      handle_ = ::dlopen(candidate.c_str(), RTLD_NOW | RTLD_LOCAL);
      if (handle_ != nullptr) return;
      const char* said = ::dlerror();
      if (why_not_.empty()) why_not_ = said == nullptr ? "the loader does not say why" : said;
    }
  });
  return handle_ != nullptr;
}

std::string Library::path() {
  link_map* map = nullptr;
  return there() && ::dlinfo(handle_, RTLD_DI_LINKMAP, &map) == 0 ? map->l_name : std::string{};
}

void* Library::symbol(const char* name) {
  if (!there())
    throw Error(ExitCode::usage, "cannot open " + soname_ + " (" + why_not_ + ")", "CUDA backend",
                "Install " + package_ + ", or put its folder into LD_LIBRARY_PATH");
  void* const found = ::dlsym(handle_, name);
  if (found == nullptr)
    throw Error(ExitCode::usage, strfmt("%s has no %s", path().c_str(), name), "CUDA backend",
                "It is too old: install " + package_);
  return found;
}

std::string cublaslt_version() {
  if (!Library::cublaslt().there()) return {};
  const std::size_t v = TESSERA_SYMBOL(Library::cublaslt(), cublasLtGetVersion)();
  return strfmt("%zu.%zu.%zu", v / 10000, v / 100 % 100, v % 100);
}

std::string nccl_version() {
  if (!Library::nccl().there()) return {};
  int v = 0;
  reinterpret_cast<int (*)(int*)>(Library::nccl().symbol("ncclGetVersion"))(
      &v);  // declared here: no header is needed for it
  return strfmt("%d.%d.%d", v / 10000, v / 100 % 100, v % 100);
}

std::string cudnn_version() {
  if (!Library::cudnn().there()) return {};
  const std::size_t v = reinterpret_cast<std::size_t (*)()>(Library::cudnn().symbol("cudnnGetVersion"))();
  return strfmt("%zu.%zu.%zu", v / 10000, v / 100 % 100, v % 100);
}

}  // namespace tessera::cuda
