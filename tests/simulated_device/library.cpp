// SPDX-License-Identifier: Apache-2.0
// The simulated device has none of the libraries that are opened by name.
#include "runtime/base/cuda/library.hpp"

#include "runtime/base/error.hpp"

namespace tessera::cuda {

Library::Library(std::string soname, std::string package)
    : soname_(std::move(soname)), package_(std::move(package)), why_not_("simulated") {}
bool Library::there() { return false; }
std::string Library::path() { return {}; }
void* Library::symbol(const char*) { throw Error(ExitCode::usage, soname_ + " is not simulated"); }
Library& Library::cublaslt() {
  static Library one("libcublasLt", "");
  return one;
}
Library& Library::nccl() {
  static Library one("libnccl", "");
  return one;
}
Library& Library::cudnn() {
  static Library one("libcudnn", "");
  return one;
}
std::string cublaslt_version() { return {}; }
std::string nccl_version() { return {}; }
std::string cudnn_version() { return {}; }

}  // namespace tessera::cuda
