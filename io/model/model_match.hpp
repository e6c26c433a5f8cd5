#pragma once
// Which bytes of a model's files are which parameter: every tensor accounted for, or one error that lists what does not
// fit.

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "io/model/safetensors.hpp"
#include "runtime/base/param.hpp"
#include "runtime/base/tensor_use.hpp"

namespace tessera::io {

/// Elements of a tensor, from element `first` on.
struct TensorRange {
  const SafetensorsFile* file = nullptr;
  const SafetensorsEntry* entry = nullptr;
  std::int64_t first = 0;
};

struct ModelMatch {
  std::vector<TensorRange> places;  // of each parameter
  struct Copy {
    int param = 0;
    TensorRange place;
  };
  std::vector<Copy> copies;  // tensors that must be equal to a parameter
};

/// Throws Error (data), E112 or E113: missing, unexpected, misshapen, doubled tensors, and such that are no floats; all
/// of them in one line. `source` is the directory, for the message. The files must outlive the result.
[[nodiscard]] ModelMatch match_model(std::span<const SafetensorsFile> files, const std::string& source,
                                     std::span<const ParamSpec> params,
                                     const std::function<TensorUse(const std::string&)>& use);

}  // namespace tessera::io
