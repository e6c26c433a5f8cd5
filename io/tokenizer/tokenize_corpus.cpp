// Tokenizes a corpus in rounds: every rank tokenizes some ranges, and the counts give the offset of each rank's ids.

#include <unistd.h>

#include <sstream>

#include "io/data/data_kind.hpp"
#include "io/data/documents.hpp"
#include "io/data/jsonl.hpp"
#include "io/data/token_file.hpp"
#include "io/tokenizer/corpus.hpp"
#include "io/tokenizer/encoder.hpp"

namespace tessera::io {

namespace {

constexpr std::size_t header_size = 1024;
constexpr std::size_t parts_a_round = 4;  // of a rank

/// A rank's result of a round.
struct Made {
  std::vector<std::int32_t> ids;
  std::vector<std::int64_t> ends;  // of documents, in ids
};

/// Documents to ids, with the special tokens around them.
class DocumentEncoder {
 public:
  DocumentEncoder(const TextTokenizer& tokenizer, std::optional<std::int32_t> eos)
      : tables_(tokenizer.tables()), encoder_(tables_, Encoder::Memory::cache), eos_(eos) {
    const std::vector<std::int32_t>& behind = tables_.post_processor.behind;
    if (!behind.empty() && eos_ == behind.back()) eos_.reset();  // the template adds it
  }

  void encode(std::string_view text, bool begins, bool ends, Made& made) {
    std::vector<std::int32_t>& ids = made.ids;
    const auto& [before, behind] = tables_.post_processor;
    if (begins) ids.insert(ids.end(), before.begin(), before.end());
    encoder_.encode(text, begins ? Normalizer::Position::beginning : Normalizer::Position::inside, ids);
    if (!ends) return;
    ids.insert(ids.end(), behind.begin(), behind.end());
    if (eos_) ids.push_back(*eos_);
    made.ends.push_back(static_cast<std::int64_t>(ids.size()));
  }
  void encode(const Corpus& corpus, const Corpus::ByteRange& range, Made& made) {
    const std::string_view text = corpus.text(range);
    if (!corpus.is_jsonl(range.file)) {
      const std::size_t zero = text.find('\0');
      if (zero != text.npos) throw zero_byte_error(corpus.path(range.file), range.offset + zero);
      return encode(text, range.begins, range.ends, made);
    }
    const auto document = [&](std::string_view one) { encode(one, true, true, made); };
    try {
      for_each_jsonl_text(text, corpus.path(range.file), document);
    } catch (const Error&) {  // lines are counted only here, for the message
      for_each_jsonl_text(
          text, corpus.path(range.file), [](std::string_view) {}, corpus.line_at(range.file, range.offset));
      throw;
    }
  }
  [[nodiscard]] std::int64_t repaired() const { return encoder_.repaired(); }

 private:
  const TokenizerTables& tables_;
  Encoder encoder_;
  std::optional<std::int32_t> eos_;
};

struct Counts {
  std::int64_t tokens = 0, documents = 0;
  void add(const Counts& more) { tokens += more.tokens, documents += more.documents; }
};

/// Collective. Adds every rank's `mine` to `all`; returns the old value plus those of lower ranks: this rank's offset.
Counts count_all(World& world, const Counts& mine, Counts& all) {
  std::string joined;
  for (const std::string& text : world.gather(std::to_string(mine.tokens) + " " + std::to_string(mine.documents)))
    joined += text + " ";
  std::istringstream in(world.broadcast(joined));
  Counts before = all;
  for (int rank = 0; rank < world.size(); ++rank) {
    Counts one;
    in >> one.tokens >> one.documents;
    all.add(one);
    if (rank < world.rank()) before.add(one);
  }
  return before;
}

void write_ids(const File& file, int width, std::int64_t first, std::span<const std::int32_t> ids,
               std::vector<std::uint16_t>& buffer) {
  const std::uint64_t at = header_size + static_cast<std::uint64_t>(first) * static_cast<std::uint64_t>(width);
  if (width == 4) return file.write_at(at, std::as_bytes(ids));
  buffer.assign(ids.begin(), ids.end());
  file.write_at(at, std::as_bytes(std::span(buffer)));
}

/// Turns `ends` in this rank's ids into ends in the file, where these ids begin at `at`.
void write_ends(const File& file, const Counts& at, std::vector<std::int64_t>& ends) {
  for (std::int64_t& end : ends) end += at.tokens;
  const auto file_offset =
      document_file_header(0, 0).size() + static_cast<std::size_t>(at.documents) * sizeof(std::int64_t);
  file.write_at(file_offset, std::as_bytes(std::span(ends)));
}

/// The file under a temporary name; removed unless committed.
class Output {
 public:
  Output(World& world, std::string path) : world_(world), path_(std::move(path)), temporary_(path_) {
    // Two runs may make the same file at once: each has its own temporary file, and the last rename wins.
    temporary_ += world_.broadcast("." + world_.host() + "." + std::to_string(::getpid()) + ".tmp");
    world_.run_on_rank_0([&] { file_ = File::create(temporary_); });
    world_.run_and_agree([&] {
      if (world_.rank() != 0) file_ = File::open_to_write(temporary_);
    });
  }
  ~Output() {
    if (world_.rank() == 0 && !committed_) remove_quietly(temporary_);
  }
  Output(const Output&) = delete;
  [[nodiscard]] const File& file() const { return file_; }
  void commit(const std::string& header) {
    world_.run_and_agree([&] {
      if (world_.rank() == 0) file_.write_at(0, std::as_bytes(std::span(header)));
      file_.sync();
      file_.close();
    });
    world_.run_and_agree([&] {
      if (world_.rank() == 0) commit_rename(temporary_, path_);
      committed_ = true;
    });
  }

 private:
  World& world_;
  std::string path_, temporary_;
  File file_;
  bool committed_ = false;
};

}  // namespace

CorpusReport tokenize_corpus(World& world, const TextTokenizer& tokenizer, const Corpus& corpus,
                             const TokenizeOptions& options) {
  const auto cut = tokenizer.tables().is_splittable ? Corpus::Split::at_safe_newlines : Corpus::Split::never;
  const std::vector<Corpus::ByteRange> ranges = corpus.ranges(options.range_bytes, cut);
  CorpusReport report{.bytes = corpus.bytes(), .width = tokenizer.vocab_size() <= 65536 ? 2 : 4};
  DocumentEncoder encoder(tokenizer, options.eos);
  Output output(world, options.out), documents(world, document_file_name(options.out));
  Made made;
  Counts all;
  std::vector<std::uint16_t> buffer;
  std::uint64_t bytes_done = 0;
  const std::size_t round = parts_a_round * static_cast<std::size_t>(world.size());
  for (std::size_t first = 0; first < ranges.size(); first += round) {
    const std::size_t mine = first + parts_a_round * static_cast<std::size_t>(world.rank());
    made.ids.clear();
    made.ends.clear();
    world.run_and_agree([&] {
      for (std::size_t p = mine; p < std::min(mine + parts_a_round, ranges.size()); ++p)
        encoder.encode(corpus, ranges[p], made);
    });
    const Counts at = count_all(
        world, {static_cast<std::int64_t>(made.ids.size()), static_cast<std::int64_t>(made.ends.size())}, all);
    world.run_and_agree([&] {
      write_ids(output.file(), report.width, at.tokens, made.ids, buffer);
      write_ends(documents.file(), at, made.ends);
    });
    for (std::size_t p = first; p < std::min(first + round, ranges.size()); ++p) bytes_done += ranges[p].length;
    if (options.progress && world.rank() == 0) options.progress({bytes_done, report.bytes, all.tokens});
  }
  report.tokens = all.tokens;
  report.documents = all.documents;
  report.repaired = world.sum(encoder.repaired());
  if (report.tokens == 0) throw Error(ExitCode::data, "the data set has no token: its documents are empty");
  documents.commit(
      document_file_header(report.tokens, report.documents));  // before the token file, which then never lacks it
  output.commit(token_file_header(report.width, report.tokens));
  return report;
}

}  // namespace tessera::io
