// SPDX-License-Identifier: Apache-2.0
#pragma once
// Matrices that bitsandbytes has quantized, in the tensors of a model's files: the names and forms that transformers
// writes. nf4: NAME (U8), NAME.absmax (U8), NAME.quant_map, NAME.nested_absmax, NAME.nested_quant_map and
// NAME.quant_state.bitsandbytes__nf4, where NAME ends with ".weight"; without double quantization NAME.absmax (F32),
// and nothing nested; fp4 the same with __fp4. int8: NAME (I8), and beside it SCB (F32) and
// weight_format.

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "io/model/safetensors.hpp"
#include "runtime/base/quantized.hpp"

namespace tessera::io {

/// A tensor and the file that has it.
struct StoredTensor {
  const SafetensorsFile* file = nullptr;
  const SafetensorsEntry* entry = nullptr;
};

/// One of these matrices.
class BnbMatrix {
 public:
  [[nodiscard]] const QuantizedMatrix& matrix() const { return matrix_; }
  /// Rows and columns.
  [[nodiscard]] const std::vector<std::int64_t>& shape() const { return shape_; }
  /// Bytes [first, first + to.size()) of the matrix as it is kept in memory (runtime/base/quantized.hpp).
  void read_bytes(std::int64_t first, std::span<std::byte> to) const;
  /// Elements [first, first + count), dequantized.
  void read_elements(std::int64_t first, std::int64_t count, float* to) const;

 private:
  friend class BnbTensors;
  /// A part of the bytes, and the tensor that has it.
  struct Part {
    std::int64_t begin = 0;
    StoredTensor tensor;
  };
  QuantizedMatrix matrix_;
  std::vector<std::int64_t> shape_;
  std::vector<Part> parts_;  // in order
  float mean_ = 0;           // double quantization: after them
};

class BnbTensors {
 public:
  /// Finds them. Throws Error (data), which names the tensor: a part is missing or has another size; another format
  /// than nf4 and fp4 in blocks of 64 with bitsandbytes' codes, double quantization in blocks of 256, or int8 by rows.
  explicit BnbTensors(const std::vector<StoredTensor>& tensors);

  /// The matrix of that name; null: it is none.
  [[nodiscard]] const BnbMatrix* find(const std::string& name) const;
  /// Whether the tensor belongs to a matrix of another name.
  [[nodiscard]] bool is_part(const std::string& name) const { return part_of_.contains(name); }

 private:
  void add_4bit(const std::string& name, bool fp4, const StoredTensor& codes, const StoredTensor& state);
  /// The statistics of double quantization.
  void add_nested(const std::string& name, const StoredTensor& codes, BnbMatrix& to);
  void add_int8(const std::string& name, const StoredTensor& codes, const StoredTensor& scales);
  /// A tensor that belongs to `name`, of this type and number of elements.
  const StoredTensor& part(const std::string& name, const std::string& of, const char* type, std::int64_t numel);

  std::map<std::string, StoredTensor> tensors_;
  std::map<std::string, std::string> part_of_;
  std::map<std::string, BnbMatrix> matrices_;
};

}  // namespace tessera::io
