#pragma once
// safetensors: the file format of Hugging Face models (docs/formats.md has its rules), read and written by slices.

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "runtime/base/tensor.hpp"

namespace tessera::io {

struct SafetensorsEntry {
  std::string name;
  DType dtype = DType::f32;
  std::vector<std::int64_t> shape;
  std::uint64_t begin = 0, end = 0;  // bytes, from the start of the file
};

/// An open file whose header has been checked against every rule; bytes are read on demand.
class SafetensorsFile {
 public:
  /// Throws Error (data) naming the file and the rule: header too long or beyond the end, not JSON, duplicate name, unknown
  /// dtype, size ≠ shape·dtype, hole or overlap, last end ≠ file end, overflow.
  explicit SafetensorsFile(const std::string& path);
  ~SafetensorsFile();
  SafetensorsFile(SafetensorsFile&&) noexcept;
  SafetensorsFile(const SafetensorsFile&) = delete;

  [[nodiscard]] const std::vector<SafetensorsEntry>& entries() const { return entries_; }
  /// Null if there is none of that name.
  [[nodiscard]] const SafetensorsEntry* find(const std::string& name) const;
  [[nodiscard]] const std::map<std::string, std::string>& metadata() const { return metadata_; }
  /// Elements [first, first + count) of a tensor, converted to fp32 (from fp32, bf16, fp16, fp64). Throws Error (data).
  void read(const SafetensorsEntry& entry, std::int64_t first, std::int64_t count, float* out) const;
  [[nodiscard]] std::uint64_t bytes_read() const { return bytes_read_; }

 private:
  std::string path_;
  int fd_ = -1;
  std::vector<SafetensorsEntry> entries_;
  std::map<std::string, std::string> metadata_;
  mutable std::uint64_t bytes_read_ = 0;
};

/// A file to be written by many: the header fixes every offset beforehand, so ranks need not meet while they write.
/// Tensors are ordered as the official writer does (by descending alignment of dtype, then name).
struct SafetensorsPlan {
  std::string header;                      // 8 bytes of length, JSON, spaces to a multiple of 8
  std::vector<SafetensorsEntry> entries;
  std::uint64_t file_bytes = 0;
};
struct SafetensorsTensor {
  std::string name;
  DType dtype = DType::f32;
  Shape shape;
};
[[nodiscard]] SafetensorsPlan plan_safetensors(const std::vector<SafetensorsTensor>& tensors,
                                               const std::map<std::string, std::string>& metadata);

}  // namespace tessera::io
