// SPDX-License-Identifier: Apache-2.0
#pragma once
// safetensors: the file format of Hugging Face models (docs/formats.md has its rules), read and written by slices.

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "io/file/file.hpp"
#include "runtime/base/tensor.hpp"

namespace tessera::io {

/// The official reader's limit, in bytes.
inline constexpr std::uint64_t max_safetensors_header = 100'000'000;

struct SafetensorsEntry {
  std::string name;
  DType dtype = DType::f32;  // valid if known_dtype
  std::vector<std::int64_t> shape;
  std::uint64_t begin = 0, end = 0;  // bytes, from the start of the file
  const char* type = "F32";          // the file's name for it; static storage
  bool known_dtype = true;           // false: legal in a file, but not a DType (BOOL, F8_E4M3, …): cannot be read

  [[nodiscard]] std::int64_t numel() const;
};

/// "E105 SOURCE is not a valid safetensors file: RULE. …"; docs/formats.md has the codes.
[[nodiscard]] Error safetensors_error(const std::string& source, const char* code, const std::string& rule);

/// A checked header. Entries are in the order of their bytes.
struct SafetensorsHeader {
  std::vector<SafetensorsEntry> entries;
  std::map<std::string, std::string> metadata;
};

/// Parses the JSON of a header (without the 8 bytes of length) of a file of `file_bytes`. Memory is
/// proportional to the text. Throws Error (data) naming `source` and the broken rule.
[[nodiscard]] SafetensorsHeader parse_safetensors_header(std::string_view json, std::uint64_t file_bytes,
                                                         const std::string& source);

/// An open file with a checked header; tensors are read on demand.
class SafetensorsFile {
 public:
  /// Throws Error (data) naming the file and the rule: header too long or beyond the end, not JSON, duplicate name,
  /// unknown dtype, size ≠ shape·dtype, hole or overlap, last end ≠ file end, overflow; a git-lfs pointer, the
  /// text of a link.
  explicit SafetensorsFile(const std::string& path);

  [[nodiscard]] const std::string& path() const { return file_.path(); }
  /// The size that the header was checked against.
  [[nodiscard]] std::uint64_t file_bytes() const { return file_bytes_; }
  [[nodiscard]] const std::vector<SafetensorsEntry>& entries() const { return header_.entries; }
  /// From now on entries() and find() do not have it.
  void leave_out(const std::string& name);
  /// Null if there is none of that name.
  [[nodiscard]] const SafetensorsEntry* find(const std::string& name) const;
  [[nodiscard]] const std::map<std::string, std::string>& metadata() const { return header_.metadata; }
  /// Elements [first, first + count) of a tensor, converted to fp32: exactly from fp32, bf16, fp16; rounded to nearest
  /// from fp64. Throws Error (data): another dtype; an fp64 too large for fp32; the file has become shorter.
  void read(const SafetensorsEntry& entry, std::int64_t first, std::int64_t count, float* out) const;
  /// Bytes [first, first + to.size()) of a tensor of any type.
  void read_bytes(const SafetensorsEntry& entry, std::uint64_t first, std::span<std::byte> to) const;
  /// Bytes read from the file so far, header included.
  [[nodiscard]] std::uint64_t bytes_read() const { return bytes_read_; }

 private:
  void index_names();
  File file_;
  std::uint64_t file_bytes_ = 0;
  SafetensorsHeader header_;
  std::vector<std::size_t> by_name_;
  mutable std::uint64_t bytes_read_ = 0;
};

/// A file for many writers: the header fixes every offset beforehand, so ranks need not synchronize while they write.
/// Tensors are ordered as the official writer does (by descending alignment of dtype, then name).
struct SafetensorsPlan {
  std::string header;  // 8 bytes of length, JSON, spaces to a multiple of 8
  std::vector<SafetensorsEntry> entries;
  std::uint64_t file_bytes = 0;
};
/// A type as files name it. `order` is that of the official writer, ascending alignment.
struct SafetensorsType {
  const char* name;
  unsigned bits;
  bool known;
  DType dtype;
};
/// A type and a shape that are copied and not computed with: any type, any number of dimensions.
struct StoredForm {
  const SafetensorsType* type = nullptr;
  std::vector<std::int64_t> shape;
};
struct SafetensorsTensor {
  std::string name;
  DType dtype = DType::f32;
  Shape shape;
  std::optional<StoredForm> stored = {};  // what the header says, in place of dtype and shape
  [[nodiscard]] const SafetensorsType& type() const;
  [[nodiscard]] std::vector<std::int64_t> dimensions() const;
  [[nodiscard]] std::uint64_t bytes() const;
};
/// Throws Error (data): two tensors of one name, a name that is not UTF-8 or is "__metadata__".
[[nodiscard]] SafetensorsPlan plan_safetensors(const std::vector<SafetensorsTensor>& tensors,
                                               const std::map<std::string, std::string>& metadata);

/// Null if there is no such type.
[[nodiscard]] const SafetensorsType* find_safetensors_type(std::string_view name);
[[nodiscard]] const SafetensorsType& safetensors_type(DType dtype);

}  // namespace tessera::io
