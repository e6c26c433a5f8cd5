// SPDX-License-Identifier: Apache-2.0
#pragma once
// Tensors of floats that model files hold in codes of 4 or 8 bits with a scale for each block, and that are read as
// floats. MXFP4, as gpt-oss is published: NAME_blocks (U8) and NAME_scales (U8), of NAME transposed. FP8, as Qwen and
// DeepSeek publish: NAME (F8_E4M3) and NAME_scale_inv, of blocks that the config's weight_block_size says.

#include <array>
#include <map>
#include <string>
#include <vector>

#include "io/model/bnb_tensors.hpp"
#include "io/model/safetensors.hpp"

namespace tessera::io {

class CodedTensor {
 public:
  [[nodiscard]] const std::string& name() const { return name_; }
  [[nodiscard]] const std::vector<std::int64_t>& shape() const { return shape_; }
  /// Elements [first, first + count): codes times their scales, in fp32.
  void read_elements(std::int64_t first, std::int64_t count, float* to) const;

 private:
  friend class CodedTensors;
  struct Part {
    std::int64_t matrix, first, last;  // elements of a matrix
    float* to;
  };
  void read_mxfp4(const Part& part) const;
  void read_fp8(const Part& part) const;

  std::string name_;
  std::vector<std::int64_t> shape_;  // the last two dimensions are a matrix
  bool mxfp4_ = false;
  StoredTensor codes_, scales_;
  std::array<std::int64_t, 2> block_ = {};  // of FP8: rows and columns that share a scale
};

class CodedTensors {
 public:
  /// Finds them. `block`: the config's weight_block_size; zeros: it has none, and FP8 is not looked for. Throws Error
  /// (data), which names the tensor: scales are missing, or do not fit the codes.
  CodedTensors(const std::vector<StoredTensor>& tensors, std::array<std::int64_t, 2> block);

  /// The tensor whose codes are under that name in the file; null: it is none.
  [[nodiscard]] const CodedTensor* find(const std::string& name) const;
  /// Whether the tensor of that name in the file has the scales of another one.
  [[nodiscard]] bool is_part(const std::string& name) const { return scales_.contains(name); }

 private:
  void add_mxfp4(const std::string& name, const StoredTensor& blocks, const StoredTensor& scales);
  void add_fp8(const StoredTensor& codes, const StoredTensor& scales, std::array<std::int64_t, 2> block);

  std::map<std::string, CodedTensor> tensors_;  // by the name of the codes
  std::map<std::string, std::string> scales_;
};

/// weight_block_size of a directory's config.json; zeros: there is none.
[[nodiscard]] std::array<std::int64_t, 2> fp8_block_of(const std::string& config_json);

}  // namespace tessera::io
