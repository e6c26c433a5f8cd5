// SPDX-License-Identifier: Apache-2.0
#pragma once
// cuBLASLt, NCCL and cuDNN, opened by dlopen when a device has been found. If they were linked, cuBLASLt alone would
// cost every run on the CPU 92 MiB and 0.1 s.

#include <mutex>
#include <string>

namespace tessera::cuda {

/// One library, opened once per process and never closed. Thread-safe.
class Library {
 public:
  [[nodiscard]] static Library& cublaslt();
  [[nodiscard]] static Library& nccl();
  [[nodiscard]] static Library& cudnn();

  /// `soname`: what the loader looks for, then in lib64 and lib of $CUDA_HOME and /usr/local/cuda. `package`: what to
  /// install.
  Library(std::string soname, std::string package);
  Library(const Library&) = delete;
  Library& operator=(const Library&) = delete;

  /// Opens it if it is not open. False if it cannot be: why_not() has the loader's message.
  [[nodiscard]] bool there();
  [[nodiscard]] const std::string& why_not() const { return why_not_; }
  /// The file it was opened from.
  [[nodiscard]] std::string path();
  /// Address of a function. Throws Error (usage) with the library, the loader's message and what to install.
  [[nodiscard]] void* symbol(const char* name);
  [[nodiscard]] const std::string& soname() const { return soname_; }

 private:
  std::string soname_, package_, why_not_;
  std::once_flag once_;
  void* handle_ = nullptr;
};

/// "13.1.0": the library's own version; "" if it cannot be opened.
[[nodiscard]] std::string cublaslt_version();
[[nodiscard]] std::string nccl_version();
[[nodiscard]] std::string cudnn_version();

}  // namespace tessera::cuda

/// A typed pointer to `function`. The including source must include the library's header, which declares it.
#define TESSERA_SYMBOL(library, function) reinterpret_cast<decltype(&function)>((library).symbol(#function))
