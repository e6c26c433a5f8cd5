// SPDX-License-Identifier: Apache-2.0
#pragma once
// Where the documents of a data set end. Of a token file F.bin this is read from F.bin.documents, which `tessera
// tokenize` writes, or found by a token that ends documents.

#include <cstdint>
#include <functional>
#include <list>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "io/data/dataset.hpp"
#include "io/data/megatron.hpp"
#include "io/data/packing.hpp"
#include "io/file/file.hpp"

namespace tessera::io {

/// "F.bin.documents".
[[nodiscard]] std::string document_file_name(const std::string& token_file);
/// The header of such a file; the ends (int64 each) follow.
[[nodiscard]] std::string document_file_header(std::int64_t tokens, std::int64_t documents);
/// Checks header, size and last end of such a file, and returns its ends; they are in order only as far as each is read
/// (DocumentEnds). Throws Error (data): another magic, a length that contradicts the count, a last end that is not
/// `tokens` (the file belongs to another token file).
[[nodiscard]] std::span<const std::int64_t> check_document_file(std::string_view bytes, std::int64_t tokens,
                                                                const std::string& path);

/// The ends of all documents of a data set, in order; the last one is its size. .documents files are mapped.
class DocumentEnds {
 public:
  /// `separator` is called once, and only if a token file has neither a .documents file nor a Megatron index; that file
  /// is then read to find the ends. Throws Error (data): as check_document_file; a token file without a separator.
  DocumentEnds(const Dataset& data, const std::function<std::int32_t()>& separator);

  [[nodiscard]] std::int64_t size() const { return size_; }
  /// Documents of file `file` of the data set; text and rows count as one file.
  [[nodiscard]] std::int64_t documents_of(std::size_t file) const { return files_[file].documents; }
  /// The end of document i of size().
  [[nodiscard]] std::int64_t operator[](std::int64_t i) const;
  /// The first document that ends at `position` or behind it; size() if none does.
  [[nodiscard]] std::int64_t find(std::int64_t position) const;
  /// Calls take(begin, end) for documents [first, last). Throws Error (data): a document ends before it begins, or
  /// behind its file.
  void for_each(std::int64_t first, std::int64_t last, const TakeDocument& take) const;
  /// All ends: 8 bytes of memory for each.
  [[nodiscard]] std::vector<std::int64_t> all() const;

 private:
  struct File {
    std::string path;                    // that says where documents end
    std::int64_t first_document = 0;     // in the data set
    std::int64_t first = 0, tokens = 0;  // of the file in the stream
    std::int64_t documents = 0;
    std::span<const std::int64_t> ends;  // in the file; none where `index` has them
    std::optional<MegatronIndex> index;
    [[nodiscard]] std::int64_t end(std::int64_t i) const {
      return index ? index->document_end(i) : ends[static_cast<std::size_t>(i)];
    }
  };
  void add(File file);
  [[nodiscard]] const File& file_of(std::int64_t document) const;

  std::vector<File> files_;
  std::vector<MappedFile> maps_;
  std::list<std::vector<std::int64_t>> found_;
  std::int64_t size_ = 0;
};

/// True if a token file of the data set does not say where its documents end.
[[nodiscard]] bool needs_separator(const Dataset& data);

}  // namespace tessera::io
