#pragma once
// CUDA's large libraries, opened by name when they are first asked for, which is when a device has been found: linked,
// cuBLASLt alone would cost every run on the host 92 MiB and a tenth of a second.

#include <mutex>
#include <string>

namespace tessera::cuda {

/// One library. Opened once per process and never closed. Threads may share it.
class Library {
 public:
  [[nodiscard]] static Library& cublaslt();
  [[nodiscard]] static Library& nccl();
  [[nodiscard]] static Library& cudnn();

  /// `soname` is what the loader looks for; then the lib64 and lib folders of $CUDA_HOME and
  /// /usr/local/cuda. `package`: what to install.
  Library(std::string soname, std::string package);
  Library(const Library&) = delete;
  Library& operator=(const Library&) = delete;

  /// Opens it if need be. False where there is none; why_not() then says what the loader said.
  [[nodiscard]] bool there();
  [[nodiscard]] const std::string& why_not() const { return why_not_; }
  /// The file it was opened from.
  [[nodiscard]] std::string path();
  /// Address of a function. Throws Error (usage) naming the library, what the loader said and what to install.
  [[nodiscard]] void* symbol(const char* name);
  [[nodiscard]] const std::string& soname() const { return soname_; }

 private:
  std::string soname_, package_, why_not_;
  std::once_flag once_;
  void* handle_ = nullptr;
};

/// "13.1.0": what the library says of itself; "" where it is not there.
[[nodiscard]] std::string cublaslt_version();
[[nodiscard]] std::string nccl_version();
[[nodiscard]] std::string cudnn_version();

}  // namespace tessera::cuda

/// A typed pointer to `function`, declared by the library's header, which the including source file has
/// read: tables are made of these.
#define TESSERA_SYMBOL(library, function) reinterpret_cast<decltype(&function)>((library).symbol(#function))
