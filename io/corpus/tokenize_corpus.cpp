// SPDX-License-Identifier: Apache-2.0
// Tokenizes in rounds: every rank tokenizes some ranges, and the counts give the offset of each rank's ids.

#include "io/corpus/tokenize_corpus.hpp"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <numeric>
#include <set>
#include <sstream>

#include "io/data/data_kind.hpp"
#include "io/data/documents.hpp"
#include "io/data/loss_file.hpp"
#include "io/data/row_report.hpp"
#include "io/data/token_file.hpp"

namespace tessera::io {

namespace {

constexpr std::size_t header_size = 1024;
constexpr std::size_t parts_a_round = 4;  // of a rank

/// Of documents, in ids.
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

void write_ids(const File& file, int width, std::int64_t first, std::span<const std::int32_t> ids) {
  const std::uint64_t at = header_size + static_cast<std::uint64_t>(first) * static_cast<std::uint64_t>(width);
  if (width == 4) return file.write_at(at, std::as_bytes(ids));
  std::array<std::uint16_t, std::size_t{1} << 15> narrow{};
  for (std::size_t done = 0; done < ids.size(); done += narrow.size()) {
    const auto part = ids.subspan(done, std::min(narrow.size(), ids.size() - done));
    std::copy(part.begin(), part.end(), narrow.begin());
    file.write_at(at + 2 * done, std::as_bytes(std::span(narrow).first(part.size())));
  }
}

/// Turns `ends` in this rank's ids into ends in the file, where these ids begin at `at`.
void write_ends(const File& file, const Counts& at, std::vector<std::int64_t>& ends) {
  for (std::int64_t& end : ends) end += at.tokens;
  const auto file_offset =
      document_file_header(0, 0).size() + static_cast<std::size_t>(at.documents) * sizeof(std::int64_t);
  file.write_at(file_offset, std::as_bytes(std::span(ends)));
}

void write_loss(const File& file, const Counts& at, const std::vector<std::uint8_t>& loss) {
  const std::size_t begin = loss_file_header(0, 0, {}).size();
  file.write_at(begin + static_cast<std::uint64_t>(at.tokens), std::as_bytes(std::span(loss)));
}

/// Collective. Gives every rank the same weights, those of earlier documents first, and changes `made` accordingly.
void agree_on_weights(World& world, EncodedDocuments& made, std::vector<float>& weights) {
  if (world.max(made.weights.size() > weights.size() ? 1 : 0) == 0) return;
  std::string mine;
  for (const float weight : made.weights) mine += strfmt("%.9g ", static_cast<double>(weight));
  std::string joined;
  for (const std::string& text : world.gather(mine)) joined += text;
  std::istringstream in(world.broadcast(joined));
  for (float weight = 0; in >> weight;)
    if (std::find(weights.begin(), weights.end(), weight) == weights.end()) weights.push_back(weight);
  if (weights.size() > std::tuple_size_v<LossWeights>)
    throw Error(ExitCode::data, "the rows name more than 254 weights beside 0 and 1", "loss_scale",
                "Round the weights of messages");
  for (std::uint8_t& index : made.loss) {
    const auto found = std::find(weights.begin(), weights.end(), made.weights[index]);
    index = static_cast<std::uint8_t>(found - weights.begin());
  }
  made.weights = weights;
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

/// Joins numbers of all ranks by adding them, element by element; the same length on every rank.
void add_over_ranks(World& world, std::vector<std::int64_t>& numbers) {
  std::string mine;
  for (const std::int64_t number : numbers) mine += std::to_string(number) + " ";
  std::fill(numbers.begin(), numbers.end(), 0);
  std::string all;
  if (const std::vector<std::string> texts = world.gather(mine); !texts.empty()) {
    for (const std::string& text : texts) {
      std::istringstream in(text);
      for (std::int64_t& sum : numbers) {
        std::int64_t number = 0;
        in >> number;
        sum += number;
      }
    }
    for (const std::int64_t number : numbers) all += std::to_string(number) + " ";
  }
  std::istringstream in(world.broadcast(all));
  for (std::int64_t& number : numbers) in >> number;
}

/// Collective. Counts the rows of files that select some, and numbers the first one of each range.
std::vector<std::int64_t> number_rows(World& world, const Corpus& corpus, std::vector<Corpus::ByteRange>& ranges) {
  std::vector<std::int64_t> counts(ranges.size(), 0);
  std::size_t files = 0;
  bool any = false;
  for (std::size_t k = 0; k < ranges.size(); ++k) {
    files = ranges[k].file + 1;
    if (!corpus.file(ranges[k].file).selects()) continue;
    any = true;
    if (k % static_cast<std::size_t>(world.size()) != static_cast<std::size_t>(world.rank())) continue;
    for_each_row(corpus.text(ranges[k]), corpus.format(ranges[k].file), [&](const Row&) { ++counts[k]; });
    corpus.release(ranges[k]);
  }
  std::vector<std::int64_t> all_rows(files, 0);
  if (!any) return all_rows;
  add_over_ranks(world, counts);
  for (std::size_t k = 0; k < ranges.size(); ++k) {
    ranges[k].first_row = all_rows[ranges[k].file];
    all_rows[ranges[k].file] += counts[k];
  }
  return all_rows;
}

/// Throws unless there are tokens, and a document of each file; `documents`: of all ranks, by file. Reads a file
/// without one again, for the reason.
void require_documents(const CorpusReport& report, const std::vector<std::int64_t>& documents, const Corpus& corpus,
                       const std::vector<Corpus::ByteRange>& ranges, const std::vector<std::int64_t>& all_rows,
                       DocumentEncoder& encoder, bool masks) {
  const auto none = std::find(documents.begin(), documents.end(), 0);
  if (none == documents.end() && report.tokens > 0) return;
  if (none == documents.end()) throw Error(ExitCode::data, "the data set has no token: its documents are empty");
  const auto file = static_cast<std::size_t>(none - documents.begin());
  EncodedDocuments made;
  made.masks = masks;
  for (const Corpus::ByteRange& range : ranges)
    if (range.file == file && made.skipped.count == 0) encoder.encode(corpus, range, all_rows, made);
  const std::string& path = corpus.file(file).path;
  if (made.skipped.count == 0)
    throw Error(ExitCode::data, "no row of " + path + " is selected", {}, "Select more of its rows, or leave it out");
  throw Error(ExitCode::data, "no row of " + path + " can be used", made.skipped.one(),
              "docs/data.md describes the rows that are accepted");
}

/// Collective: the skipped rows of a round to the report; those named by lower ranks come first.
void add_skipped(World& world, const SkippedRows& mine, SkippedRows& all) {
  const std::int64_t count = world.sum(mine.count);
  if (count == 0) return;
  const std::int64_t before = all.count;
  for (const std::string& text : world.gather(skipped_text(mine))) all.add_skipped(parse_skipped(text));
  all.count = before + count;
}

/// Collective: the unread keys of all ranks, to every rank.
void add_unread(World& world, UnreadKeys& unread) {
  nlohmann::json mine = unread.counts;
  nlohmann::json all = nlohmann::json::array();
  for (const std::string& text : world.gather(mine.dump())) all.push_back(nlohmann::json::parse(text));
  const std::int64_t others = world.sum(unread.others);
  unread = {};
  for (const nlohmann::json& counts : nlohmann::json::parse(world.broadcast(all.dump())))
    for (const auto& [key, rows] : counts.items()) unread.add(key, rows.get<std::int64_t>());
  unread.others += others;
}

/// Collective: the keys of `columns` that no row of any rank had.
std::vector<std::string> absent_columns(World& world, const Columns& columns, const std::set<std::string>& renamed) {
  std::set<std::string> had;
  for (const std::string& text : world.gather(nlohmann::json(renamed).dump()))
    for (const nlohmann::json& key : nlohmann::json::parse(text)) had.insert(key.get<std::string>());
  had = nlohmann::json::parse(world.broadcast(nlohmann::json(had).dump())).get<std::set<std::string>>();
  std::vector<std::string> absent;
  for (const auto& [from, to] : columns)
    if (!had.contains(from)) absent.push_back(from);
  return absent;
}

}  // namespace

CorpusReport tokenize_corpus(World& world, const TextTokenizer& tokenizer, const Corpus& corpus,
                             const TokenizeOptions& options) {
  const auto cut = tokenizer.tables().is_splittable ? Corpus::Split::at_safe_newlines : Corpus::Split::never;
  std::vector<Corpus::ByteRange> ranges = corpus.ranges(options.range_bytes, cut);
  const std::vector<std::int64_t> all_rows = number_rows(world, corpus, ranges);
  CorpusReport report;
  report.bytes = corpus.bytes();
  report.width = tokenizer.vocab_size() <= 65536 ? 2 : 4;
  DocumentEncoder encoder(tokenizer, options.eos, options.rows);
  Output output(world, options.out), documents(world, document_file_name(options.out));
  std::optional<Output> loss;
  if (corpus.has_conversations() || options.rows.pairs) loss.emplace(world, loss_file_name(options.out));
  EncodedDocuments made;
  std::vector<float> weights = made.weights;
  made.masks = loss.has_value();
  Counts all;
  std::uint64_t bytes_done = 0;
  std::int64_t without_tools = 0, without_reasoning = 0, without_messages = 0, pairs = 0, equal_pairs = 0, labelled = 0,
               after_think = 0;  // of this rank
  std::vector<std::int64_t> documents_of(corpus.files(), 0), characters_of = documents_of, invalid_of = documents_of;
  const std::size_t round = parts_a_round * static_cast<std::size_t>(world.size());
  for (std::size_t first = 0; first < ranges.size(); first += round) {
    const std::size_t mine = first + parts_a_round * static_cast<std::size_t>(world.rank());
    made.clear();
    world.run_and_agree([&] {
      for (std::size_t p = mine; p < std::min(mine + parts_a_round, ranges.size()); ++p) {
        if (options.check) options.check();
        const std::size_t before = made.ends.size(), file = ranges[p].file;
        made.read = {};
        encoder.encode(corpus, ranges[p], all_rows, made);
        documents_of[file] += static_cast<std::int64_t>(made.ends.size() - before);
        characters_of[file] += made.read.characters;
        invalid_of[file] += made.read.invalid;
        corpus.release(ranges[p]);
      }
    });
    const Counts at = count_all(
        world, {static_cast<std::int64_t>(made.ids.size()), static_cast<std::int64_t>(made.ends.size())}, all);
    add_skipped(world, made.skipped, report.skipped);
    without_tools += made.without_tools;
    without_reasoning += made.without_reasoning;
    without_messages += made.without_messages;
    pairs += made.pairs;
    equal_pairs += made.equal_pairs;
    labelled += made.labelled;
    after_think += made.after_think;
    for (const auto& [key, rows] : made.skipped.unread.counts) report.skipped.unread.add(key, rows);
    report.skipped.unread.others += made.skipped.unread.others;
    if (loss) agree_on_weights(world, made, weights);
    world.run_and_agree([&] {
      write_ids(output.file(), report.width, at.tokens, made.ids);
      write_ends(documents.file(), at, made.ends);
      if (loss) write_loss(loss->file(), at, made.loss);
    });
    for (std::size_t p = first; p < std::min(first + round, ranges.size()); ++p) bytes_done += ranges[p].length;
    if (options.progress && world.rank() == 0) options.progress({bytes_done, report.bytes, all.tokens});
  }
  report.tokens = all.tokens;
  report.documents = all.documents;
  report.repairs.replaced = world.sum(encoder.replaced());
  report.without_tools = world.sum(without_tools);
  report.without_reasoning = world.sum(without_reasoning);
  report.without_messages = world.sum(without_messages);
  report.pairs = world.sum(pairs);
  report.equal_pairs = world.sum(equal_pairs);
  report.labelled = world.sum(labelled);
  report.after_think = world.sum(after_think);
  report.files_of_pairs = options.rows.pairs ? 1 : 0;
  report.files_of_margins = options.rows.margins ? 1 : 0;
  report.files_of_labels = options.rows.labels ? 1 : 0;
  add_unread(world, report.skipped.unread);
  if (!corpus.columns().empty()) report.absent_columns = absent_columns(world, corpus.columns(), made.renamed);
  for (auto* numbers : {&documents_of, &characters_of, &invalid_of}) add_over_ranks(world, *numbers);
  report.repairs.invalid = std::accumulate(invalid_of.begin(), invalid_of.end(), std::int64_t{0});
  world.run_and_agree([&] {
    for (std::size_t k = 0; k < corpus.files(); ++k)
      reject_other_encoding(corpus.file(k).path, characters_of[k], invalid_of[k]);
  });
  world.run_and_agree(
      [&] { require_documents(report, documents_of, corpus, ranges, all_rows, encoder, loss.has_value()); });
  // The files beside the token file are complete before it, so that it never lacks them.
  documents.commit(document_file_header(report.tokens, report.documents));
  Output(world, row_report_name(options.out)).commit(row_report_text(report, report.tokens));
  LossWeights table{};
  std::copy(weights.begin(), weights.end(), table.begin());
  if (loss) loss->commit(loss_file_header(report.tokens, report.skipped.count, table));
  else world.run_on_rank_0([&] { remove_quietly(loss_file_name(options.out)); });
  output.commit(token_file_header(report.width, report.tokens, report.repairs));
  return report;
}

}  // namespace tessera::io
