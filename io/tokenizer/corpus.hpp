#pragma once
// Tokenizes text files into a token file on many ranks. The bytes do not depend on how many.

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "io/file/file.hpp"
#include "io/tokenizer/tokenizer.hpp"
#include "runtime/comm/world.hpp"

namespace tessera::io {

/// The mapped files of a corpus. A text file is one document; in a .jsonl file, each line's "text" is one.
class Corpus {
 public:
  /// Throws Error (data): a file that is missing, empty, .bin, or not text.
  explicit Corpus(const std::vector<std::string>& paths);

  /// What is tokenized at a time: a document, part of a long one, or some lines of a .jsonl file.
  struct ByteRange {
    std::size_t file = 0, offset = 0, length = 0;
    bool begins = true, ends = true;  // a document begins, ends here; true of lines
  };
  /// Where text files may be split (split_point.hpp). .jsonl files are split between lines.
  enum class Split : unsigned char { never, at_safe_newlines };
  /// All bytes of all files, in order, in ranges of about `bytes`, longer where there is no split point.
  [[nodiscard]] std::vector<ByteRange> ranges(std::size_t bytes, Split texts) const;
  [[nodiscard]] std::string_view text(const ByteRange& range) const {
    return maps_[range.file].bytes().substr(range.offset, range.length);
  }
  [[nodiscard]] const std::string& path(std::size_t file) const { return paths_[file]; }
  [[nodiscard]] bool is_jsonl(std::size_t file) const { return jsonl_[file]; }
  /// 1-based, of the line that begins at `offset`.
  [[nodiscard]] std::size_t line_at(std::size_t file, std::size_t offset) const;
  [[nodiscard]] std::uint64_t bytes() const;

  /// Collective: a hash of sizes, kinds and contents, in order, but not of names and times. Each rank reads a share.
  [[nodiscard]] std::uint64_t content_hash(World& world) const;

 private:
  std::vector<std::string> paths_;
  std::vector<MappedFile> maps_;
  std::vector<bool> jsonl_;
};

struct CorpusProgress {
  std::uint64_t bytes = 0, all_bytes = 0;
  std::int64_t tokens = 0;
};
struct CorpusReport {
  std::int64_t documents = 0, tokens = 0;
  std::int64_t repaired = 0;  // ranges with invalid UTF-8, which becomes U+FFFD
  std::uint64_t bytes = 0;
  int width = 2;  // bytes of an id in the file
};

struct TokenizeOptions {
  std::string out;                  // the token file
  std::optional<std::int32_t> eos;  // written after each document, unless the tokenizer's template adds it
  std::size_t range_bytes = std::size_t{1} << 20;
  std::function<void(const CorpusProgress&)> progress;  // called on rank 0 now and then; may be empty
};

/// Collective. Tokenizes all documents, with the template's special tokens around each, into `options.out`: uint16 ids
/// if the tokenizer has at most 65536 tokens, else uint32. A second file has the ends of the documents (documents.hpp).
/// Both are written under temporary names and renamed at the end. All ranks must see one file system. Throws Error
/// (data) on every rank alike: as Corpus does; a zero byte or an invalid line (with its position); a full disk.
CorpusReport tokenize_corpus(World& world, const TextTokenizer& tokenizer, const Corpus& corpus,
                             const TokenizeOptions& options);

}  // namespace tessera::io
