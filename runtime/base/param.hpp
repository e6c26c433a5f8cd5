// SPDX-License-Identifier: Apache-2.0
#pragma once
// ParamSpec: what models, shard and io share about a parameter. StateSpec: the same about a vector of optimizer state.

#include <algorithm>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "runtime/base/quantized.hpp"
#include "runtime/base/tensor.hpp"
#include "runtime/base/tensor_placement.hpp"

namespace tessera {

/// Initial values of a parameter: a function of (seed, name, element index) alone.
struct Initializer {
  enum class Kind : unsigned char { zeros, ones, normal, uniform };
  Kind kind = Kind::zeros;
  double std = 0;  // of normal, the mean is 0; of uniform: the bound, values are in [-std, std]
};

/// One parameter of a model, by its canonical (Hugging Face) name. Value type.
struct ParamSpec {
  std::string name;   // "h.0.attn.c_attn.weight", "model.layers.0.mlp.up_proj.weight"
  Shape shape;        // of what a rank has: all of it, or with a placement a part
  Initializer init;   // of all of it
  bool decay = true;  // weight decay applies (not to biases and norm weights)
  bool trainable = true;
  bool adapter = false;              // of LoRA: not in the base model's files
  DType storage_dtype = DType::f32;  // between steps, and in checkpoints; fp32 if trainable: the master weights
  /// Set: a frozen matrix in 4 or 8 bits. The parameter is its bytes (shape {bytes}, u8), and modules read the matrix.
  QuantizedMatrix quantized = {};
  TensorPlacement placement = {};  // over the tensor axis

  [[nodiscard]] std::int64_t numel() const { return shape.numel(); }
  /// Shape as modules have it.
  [[nodiscard]] Shape matrix_shape() const { return quantized ? Shape{quantized.rows, quantized.columns} : shape; }
  /// Of all ranks' parts together, as files, initial values and counts have it: in bytes, if quantized.
  [[nodiscard]] Shape whole_shape() const { return placement.whole(shape); }
  /// Shape and elements as model files have them.
  [[nodiscard]] Shape file_shape() const { return quantized ? matrix_shape() : whole_shape(); }
  [[nodiscard]] std::int64_t elements() const { return file_shape().numel(); }
};

/// A vector of an optimizer's state: a value for each element of a parameter, or one for each block of elements.
/// Optimizers declare theirs as a list; memory, plan and checkpoints are made from it.
struct StateSpec {
  std::string name;          // "exp_avg"; a checkpoint's data sets are /optimizer/<name>/<parameter>
  DType dtype = DType::f32;  // of a value
  std::int64_t block = 1;    // elements that share a value; blocks are counted from the parameter's start

  /// Values of `numel` elements that begin with a block.
  [[nodiscard]] std::int64_t count(std::int64_t numel) const { return (numel + block - 1) / block; }
  [[nodiscard]] std::size_t bytes(std::int64_t numel) const {
    return static_cast<std::size_t>(count(numel)) * size_of(dtype);
  }
  /// Bytes of state for one element.
  [[nodiscard]] double element_bytes() const {
    return static_cast<double>(size_of(dtype)) / static_cast<double>(block);
  }
  friend bool operator==(const StateSpec&, const StateSpec&) = default;
};

/// Elements that an update needs together: shard boundaries and the starts of parameters are multiples of it.
[[nodiscard]] inline std::int64_t granularity(std::span<const StateSpec> states) {
  std::int64_t elements = 1;
  for (const StateSpec& state : states) elements = std::max(elements, state.block);
  return elements;
}

}  // namespace tessera
