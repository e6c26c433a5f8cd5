// SPDX-License-Identifier: Apache-2.0
#pragma once
// Megatron's token files (MMapIndexedDataset, version 1): F.bin has the ids alone, F.idx says their type, and where
// sequences and documents begin (docs/formats.md).

#include <cstdint>
#include <string>
#include <string_view>

#include "io/data/token_file.hpp"

namespace tessera::io {

/// "F.idx" of "F.bin".
[[nodiscard]] std::string megatron_index_name(const std::string& token_file);
/// True if there is an F.idx beside the .bin file, so that both are Megatron's.
[[nodiscard]] bool is_megatron(const std::string& token_file);

/// A view of an index file.
class MegatronIndex {
 public:
  /// Checks header, sizes, the last sequence and the last document; takes no longer for more of them. `token_bytes`: of
  /// the .bin file. Throws Error (data): another magic, version or type of ids, a length that contradicts the counts, a
  /// .bin file of another length, documents that do not cover all sequences.
  MegatronIndex(std::string_view bytes, std::uint64_t token_bytes, const std::string& path);

  [[nodiscard]] IdType type() const { return type_; }
  [[nodiscard]] std::int64_t tokens() const { return tokens_; }
  [[nodiscard]] std::int64_t documents() const { return documents_; }
  /// The end of document `i`, in tokens. Throws Error (data): it is not among the sequences; a sequence does not begin
  /// where the one before it ends.
  [[nodiscard]] std::int64_t document_end(std::int64_t i) const;

 private:
  [[nodiscard]] std::int64_t begin_of(std::int64_t sequence) const;  // in bytes
  [[nodiscard]] std::int64_t bytes_of(std::int64_t sequence) const;

  const char* sizes_ = nullptr;     // int32 for each sequence
  const char* pointers_ = nullptr;  // int64: its first byte
  const char* first_of_ = nullptr;  // int64 for each document and the end: its first sequence
  std::string path_;
  IdType type_ = IdType::u16;
  std::int64_t sequences_ = 0, documents_ = 0, tokens_ = 0;
};

/// The ids of F.bin, by F.idx. Throws Error (data): as MegatronIndex.
[[nodiscard]] TokenFileLayout check_megatron_file(std::string_view bytes, const std::string& path);

}  // namespace tessera::io
