// SPDX-License-Identifier: Apache-2.0
// cuDNN resolved by dlsym; descriptors.
#include <cudnn.h>

#include "kernels/cuda/cudnn/library.hpp"

namespace tessera::kernels::cuda::cudnn {

/// Throws Error (usage) if the library is missing or too old.
static ::tessera::cuda::Library& supported_cudnn() {
  auto& library = ::tessera::cuda::Library::cudnn();
  const std::size_t version = TESSERA_SYMBOL(library, cudnnGetVersion)();
  if (version < 91000)  // older versions need the lowest finite number as mask value, not minus infinity
    throw Error(ExitCode::usage,
                strfmt("%s is cuDNN %s, and attention needs 9.10 or newer", library.path().c_str(),
                       ::tessera::cuda::cudnn_version().c_str()),
                "--attention cudnn", "Install a newer one, or use --attention own");
  return library;
}

CudnnLibrary::CudnnLibrary() : library(supported_cudnn()) {}

const CudnnLibrary& library() {
  static const CudnnLibrary instance;
  return instance;
}

std::string last_error_message() {
  char message[512] = {};
  library().last_error(message, sizeof message);
  return message;
}

void check(cudnnStatus_t status, const char* call, const std::string& about) {
  if (status == CUDNN_STATUS_SUCCESS) return;
  throw Error(ExitCode::internal, strfmt("%s: %s: ", call, library().error_string(status)) + last_error_message(),
              about, "Use --attention own, or another version of cuDNN");
}

Descriptor::Descriptor(cudnnBackendDescriptorType_t type) {
  check(library().create_descriptor(type, &handle_), "cudnnBackendCreateDescriptor",
        strfmt("descriptor %d", static_cast<int>(type)));
}

Descriptor::~Descriptor() {
  if (handle_ != nullptr) (void)library().destroy_descriptor(handle_);
}

Descriptor& Descriptor::set(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, std::int64_t count,
                            const void* values) {
  check(library().set_attribute(handle_, name, type, count, values), "cudnnBackendSetAttribute",
        strfmt("attribute %d", static_cast<int>(name)));
  return *this;
}

Descriptor& Descriptor::finalize(const std::string& about) {
  check(library().finalize(handle_), "cudnnBackendFinalize", about);
  return *this;
}

bool Descriptor::fetch(cudnnBackendAttributeName_t name, Descriptor& other) const {
  std::int64_t count = 0;
  check(library().get_attribute(handle_, name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &count, &other.handle_),
        "cudnnBackendGetAttribute", strfmt("attribute %d", static_cast<int>(name)));
  return count > 0;
}

std::int64_t Descriptor::integer(cudnnBackendAttributeName_t name) const {
  std::int64_t value = 0, count = 0;
  check(library().get_attribute(handle_, name, CUDNN_TYPE_INT64, 1, &count, &value), "cudnnBackendGetAttribute",
        strfmt("attribute %d", static_cast<int>(name)));
  return value;
}

}  // namespace tessera::kernels::cuda::cudnn
