#pragma once
// Text files to a token file: many ranks read and tokenise, and the bytes do not depend on how many.

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

/// The files of a corpus, mapped: text files, each a document; .jsonl files, each line's "text" one.
class Corpus {
 public:
  /// Throws Error (data): a file that is not there, empty, .bin, or of a kind that is no text.
  explicit Corpus(const std::vector<std::string>& paths);

  /// What is tokenised in one piece: a document, a part of a long one, or some lines.
  struct Part {
    std::size_t file = 0, offset = 0, length = 0;
    bool begins = true, ends = true;  // the document; true of lines
  };
  /// Where a text file may be cut (cut.hpp); lines may be told apart anyway.
  enum class Cut : unsigned char { never, at_safe_newlines };
  /// In order; together all bytes of all files. Parts have about `bytes`, unless there is no place to cut.
  [[nodiscard]] std::vector<Part> parts(std::size_t bytes, Cut texts) const;
  [[nodiscard]] std::string_view text(const Part& part) const {
    return maps_[part.file].bytes().substr(part.offset, part.length);
  }
  [[nodiscard]] const std::string& path(std::size_t file) const { return paths_[file]; }
  [[nodiscard]] bool is_jsonl(std::size_t file) const { return jsonl_[file]; }
  /// 1-based, of the line that begins at `offset`.
  [[nodiscard]] std::size_t line_at(std::size_t file, std::size_t offset) const;
  [[nodiscard]] std::uint64_t bytes() const;

  /// Collective: a hash of sizes, kinds and contents, in order; names and times are no part of it. Ranks read a share
  /// each.
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
  std::int64_t repaired = 0;  // parts with bytes that are no UTF-8, which count as U+FFFD
  std::uint64_t bytes = 0;
  int width = 2;  // bytes of an id in the file
};

struct TokenizeOptions {
  std::string out;                  // the token file
  std::optional<std::int32_t> eos;  // stands behind each document, unless the tokenizer's template puts it there
  std::size_t part_bytes = std::size_t{1} << 20;
  std::function<void(const CorpusProgress&)> progress;  // called on rank 0 now and then; may be empty
};

/// Collective. Tokenises all documents, special tokens of the template around each, into `job.out`: uint16 ids if the
/// tokenizer has at most 65536, else uint32. Beside it stands where each document ends (documents.hpp). Both are
/// written under other names and renamed at the end. Throws Error (data) on every rank alike: what Corpus refuses, a
/// zero byte or a line that is no document (with its place), a disk that is full. Ranks see one file system.
CorpusReport tokenize_corpus(World& world, const TextTokenizer& tokenizer, const Corpus& corpus,
                             const TokenizeOptions& job);

}  // namespace tessera::io
