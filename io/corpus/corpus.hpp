// SPDX-License-Identifier: Apache-2.0
#pragma once
// The files of a corpus, and their division into ranges, which ranks tokenize.

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "io/chat/row_form.hpp"
#include "io/data/data_files.hpp"
#include "io/data/rows.hpp"
#include "io/file/file.hpp"
#include "runtime/comm/world.hpp"

namespace tessera::io {

/// The form of the first row of a file that has one; others may have other forms.
struct FileForm {
  RowForm form = RowForm::text;
  bool ambiguous = false;  // is_ambiguous() of the row that decides
};
/// What the names in a table's header mean, once they are renamed (row_form.hpp).
[[nodiscard]] ColumnNames column_names(const Columns& columns);
/// That of the first row that has one; text for files without rows. Throws Error (data): no row has a form.
[[nodiscard]] FileForm file_form(const std::string& path, std::string_view bytes, const RowFormat& format,
                                 const Columns& columns);

/// The mapped files of a corpus. A text file is one document; of a file of rows, each row is one.
class Corpus {
 public:
  /// `columns`: new names of the rows' keys. Throws Error (data): a file that is missing, empty, .bin, or not text, or
  /// that is compressed and was not decompressed; a file of rows without one whose form is known; a number of rows of a
  /// file that has none.
  explicit Corpus(const std::vector<DataFile>& files, Columns columns = {});
  explicit Corpus(const std::vector<std::string>& paths);

  /// What is tokenized at a time: a document, part of a long one, or some rows.
  struct ByteRange {
    std::size_t file = 0, offset = 0, length = 0;
    bool begins = true, ends = true;  // a document begins, ends here; true of rows
    std::int64_t first_row = 0;       // of a file that selects rows: the number of the first row here
  };
  /// Where text files may be split (split_point.hpp). Files of rows are split between rows.
  enum class Split : unsigned char { never, at_safe_newlines };
  /// All bytes of all files, in order, without what is before the first row or text (rows_begin), in ranges of about
  /// `bytes`, longer where there is no split point.
  [[nodiscard]] std::vector<ByteRange> ranges(std::size_t bytes, Split texts) const;
  [[nodiscard]] std::string_view text(const ByteRange& range) const {
    return files_[range.file].map.bytes().substr(range.offset, range.length);
  }
  /// The range will not be read again soon: its pages no longer count as this process's memory.
  void release(const ByteRange& range) const;
  [[nodiscard]] const DataFile& file(std::size_t file) const { return files_[file].named; }
  [[nodiscard]] const RowFormat& format(std::size_t file) const { return files_[file].format; }
  /// The first file that is a plain text; "" if all are rows.
  [[nodiscard]] std::string plain_text() const;
  /// The files whose rows are read as text, but have a query and a response, too.
  [[nodiscard]] std::vector<std::string> ambiguous() const;
  [[nodiscard]] std::size_t files() const { return files_.size(); }
  /// Collective: looks for conversations in files whose first row is a text. Each rank reads a share; nothing is read
  /// if another file has conversations. `check` is called on every rank between blocks; may be empty. Throws Error
  /// (data) as for_each_row, and what `check` throws, on every rank alike.
  void find_conversations(World& world, const std::function<void()>& check = {});
  /// True if the first row of a file is a conversation, or find_conversations found one.
  [[nodiscard]] bool has_conversations() const;
  [[nodiscard]] const Columns& columns() const { return columns_; }
  /// "path:line" of a byte of a file. Reads the file up to there.
  [[nodiscard]] std::string line_name(std::size_t file, std::size_t offset) const;
  [[nodiscard]] std::uint64_t bytes() const;

  /// Collective: a hash of sizes, kinds, selections and contents, in order, but not of names and times. Each rank reads
  /// a share.
  [[nodiscard]] std::uint64_t content_hash(World& world) const;

 private:
  struct File {
    DataFile named;
    MappedFile map;
    RowFormat format;
    FileForm form;
  };

  [[nodiscard]] bool has_conversation(const ByteRange& range) const;

  std::vector<File> files_;
  Columns columns_;
  bool found_conversations_ = false;
};

}  // namespace tessera::io
