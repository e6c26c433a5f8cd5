#pragma once
// ParamSpec: what models, shard and io share about a parameter.

#include <string>
#include <vector>

#include "runtime/base/tensor.hpp"

namespace tessera {

/// Initial values of a parameter: a function of (seed, name, element index) alone.
struct Initializer {
  enum class Kind : unsigned char { zeros, ones, normal };
  Kind kind = Kind::zeros;
  double std = 0;  // of normal; the mean is 0
};

/// One parameter of a model, by its canonical (Hugging Face) name. Value type.
struct ParamSpec {
  std::string name;  // "h.0.attn.c_attn.weight"; no "transformer." prefix
  Shape shape;
  Initializer init;
  bool decay = true;  // weight decay applies (not to biases and norm weights)
  bool trainable = true;
  DType storage_dtype = DType::f32;  // between steps, and in checkpoints; fp32 if trainable: the master weights

  [[nodiscard]] std::int64_t numel() const { return shape.numel(); }
};

}  // namespace tessera
