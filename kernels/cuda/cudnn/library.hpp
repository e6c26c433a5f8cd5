// SPDX-License-Identifier: Apache-2.0
#pragma once
// cuDNN's graph API: functions resolved by dlsym, and RAII descriptors. The including source includes cudnn.h.

#include <cstdint>
#include <span>
#include <string>
#include <utility>

#include "runtime/base/cuda/library.hpp"
#include "runtime/base/error.hpp"

namespace tessera::kernels::cuda::cudnn {

/// The functions, resolved by dlsym. Throws Error (usage) if the library is missing or older than 9.10.
struct CudnnLibrary {
  CudnnLibrary();
  ::tessera::cuda::Library& library;
  decltype(&cudnnCreate) create = TESSERA_SYMBOL(library, cudnnCreate);
  decltype(&cudnnSetStream) set_stream = TESSERA_SYMBOL(library, cudnnSetStream);
  decltype(&cudnnGetErrorString) error_string = TESSERA_SYMBOL(library, cudnnGetErrorString);
  decltype(&cudnnGetLastErrorString) last_error = TESSERA_SYMBOL(library, cudnnGetLastErrorString);
  decltype(&cudnnBackendCreateDescriptor) create_descriptor = TESSERA_SYMBOL(library, cudnnBackendCreateDescriptor);
  decltype(&cudnnBackendDestroyDescriptor) destroy_descriptor = TESSERA_SYMBOL(library, cudnnBackendDestroyDescriptor);
  decltype(&cudnnBackendSetAttribute) set_attribute = TESSERA_SYMBOL(library, cudnnBackendSetAttribute);
  decltype(&cudnnBackendGetAttribute) get_attribute = TESSERA_SYMBOL(library, cudnnBackendGetAttribute);
  decltype(&cudnnBackendFinalize) finalize = TESSERA_SYMBOL(library, cudnnBackendFinalize);
  decltype(&cudnnBackendExecute) execute = TESSERA_SYMBOL(library, cudnnBackendExecute);
};
/// Loaded at the first call.
[[nodiscard]] const CudnnLibrary& library();
/// The library's message for its last error in this thread.
[[nodiscard]] std::string last_error_message();
/// Throws Error (internal) with the call, its context and the library's message.
void check(cudnnStatus_t status, const char* call, const std::string& about);

/// One of the library's opaque descriptors: set attributes, then finalize().
class Descriptor {
 public:
  explicit Descriptor(cudnnBackendDescriptorType_t type);
  ~Descriptor();
  Descriptor(Descriptor&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
  Descriptor& operator=(Descriptor&&) = delete;

  template <class Value>
  Descriptor& set(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, std::span<const Value> values) {
    return set(name, type, static_cast<std::int64_t>(values.size()), values.data());
  }
  template <class Value>
  Descriptor& set(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, const Value& value) {
    return set(name, type, 1, &value);
  }
  Descriptor& set(cudnnBackendAttributeName_t name, cudnnBackendDescriptor_t other) {
    return set(name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &other);
  }
  Descriptor& finalize(const std::string& about = "attention");
  /// Fills `other` with the first descriptor of an attribute; false if there is none.
  [[nodiscard]] bool fetch(cudnnBackendAttributeName_t name, Descriptor& other) const;
  [[nodiscard]] std::int64_t integer(cudnnBackendAttributeName_t name) const;
  [[nodiscard]] cudnnBackendDescriptor_t get() const { return handle_; }

 private:
  Descriptor& set(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, std::int64_t count,
                  const void* values);
  cudnnBackendDescriptor_t handle_ = nullptr;
};

}  // namespace tessera::kernels::cuda::cudnn
