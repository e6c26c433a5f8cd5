// SPDX-License-Identifier: Apache-2.0
// `tessera tokenize`: text files to an llm.c token file, in parallel.
#include <algorithm>
#include <chrono>

#include "io/data/dataset.hpp"
#include "io/data/documents.hpp"
#include "jobs/cli/commands/commands.hpp"
#include "jobs/cli/options/values.hpp"
#include "jobs/cli/session/data_source.hpp"
#include "jobs/cli/session/preferences.hpp"
#include "jobs/cli/session/signals.hpp"
#include "jobs/cli/session/tokenized_data.hpp"
#include "runtime/base/log.hpp"

namespace tessera::jobs {

namespace {

/// The text of a document's tokens, with those that have loss in ⟦ ⟧.
std::string bracketed(const io::TextTokenizer& tokenizer, const std::vector<std::int32_t>& ids,
                      const std::vector<std::uint8_t>& loss) {
  std::string text;
  for (std::size_t begin = 0, end = 0; begin < ids.size(); begin = end) {
    while (end < ids.size() && (loss[end] != 0) == (loss[begin] != 0)) ++end;
    const std::string part = tokenizer.decode(std::span(ids).subspan(begin, end - begin), io::Special::with);
    text += loss[begin] != 0 ? "⟦" + part + "⟧" : part;
  }
  return text;
}

/// "id:spelling" of each token, up to a number of them.
std::string spelled(const io::TextTokenizer& tokenizer, const std::vector<std::int32_t>& ids) {
  constexpr std::size_t max_shown = 40;
  std::string line;
  for (std::size_t i = 0; i < std::min(ids.size(), max_shown); ++i)
    line += strfmt(" %d:", ids[i]) + std::string(tokenizer.token(ids[i]));
  return line + (ids.size() > max_shown ? " …" : "");
}

/// Prints the first documents of the written file: of texts each token's id and spelling, of conversations their text
/// with the parts that have loss marked.
void preview(const std::string& path, std::int64_t documents, const io::TextTokenizer& tokenizer) {
  constexpr std::int64_t max_read = 1 << 16;
  const io::Dataset data = io::open_dataset({path});
  const io::DocumentEnds ends(data, [] { return -1; });
  std::int64_t begin = 0;
  for (std::int64_t n = 0; n < std::min(ends.size(), documents); begin = ends[n++]) {
    const std::int64_t count = ends[n] - begin, shown = std::min(count, max_read);
    if (count == 0) continue;  // of labelled answers the side that is empty, of pairs a margin that is not there
    if (data.rows.files_of_margins > 0 && n % 3 == 2) continue;  // a margin is no text
    std::vector<std::int32_t> ids(static_cast<std::size_t>(shown));
    data.tokens->read(begin, shown, ids.data());
    std::string head = strfmt("document %ld, %ld tokens", n + 1, count);
    if (!data.tokens->masked()) {
      log::info(head + ":" + spelled(tokenizer, ids));
      continue;
    }
    std::vector<std::uint8_t> loss(ids.size());
    data.tokens->read_loss(begin, shown, loss.data());
    const auto with_loss = static_cast<std::int64_t>(loss.size()) - std::count(loss.begin(), loss.end(), 0);
    log::info(head + strfmt(", %ld with loss, in ⟦ ⟧:\n", with_loss) + bracketed(tokenizer, ids, loss));
  }
}

/// Copies of data that this rank has made (io::DataFile::copy), which are removed at the end, also by an error.
class Copies {
 public:
  Copies() = default;
  ~Copies() {
    for (const std::string& path : paths_) io::remove_quietly(path);
  }
  Copies(const Copies&) = delete;
  Copies& operator=(const Copies&) = delete;
  void add(const io::DataFile& file) { paths_.push_back(file.copy); }

 private:
  std::vector<std::string> paths_;
};

/// Of this rank alone: called where all ranks agree on errors.
void throw_if_ended(const char* work) {
  if (const int signal = stop_signal(); signal != 0)
    throw Error(ExitCode::preempted, std::string("stopped by ") + signal_name(signal) + " while " + work, {},
                "No token file was written: run tessera tokenize again");
}

}  // namespace

void tokenize_command(const Call& call, World& world) {
  const Options& options = call.options();
  check_preference_options(options);
  for (const char* name : {"dataset", "out"})
    if (!options.has(name))
      throw Error(ExitCode::usage, std::string("tokenize needs --") + name, "command line",
                  "tessera tokenize --model DIR --dataset FILE ... --out FILE.bin");
  const std::string path = options.text("out");
  if (path.size() < 5 || path.substr(path.size() - 4) != ".bin")
    throw options.refuse("out", "the name of a token file ends in .bin", "Give --out NAME.bin");
  const std::shared_ptr<const io::TextTokenizer> tokenizer = load_tokenizer(options, world, options.text("model"));
  if (tokenizer == nullptr && options.text("tokenizer") == "bytes")
    throw options.refuse("tokenizer", "bytes need no token file", "Train on the text itself: --dataset FILE.txt");
  if (tokenizer == nullptr) refuse_without_tokenizer(options, options.text("model"));
  refuse_depends(options);
  const EndSignals signals;
  Copies copies;
  std::vector<io::DataFile> files = listed_files(options, world, options.list("dataset"));
  make_copies(options, world, files,
              {.directory = [&] { return io::directory_of(path); },
               .made = [&](const io::DataFile& file) { copies.add(file); }});
  std::unique_ptr<io::Corpus> corpus;
  std::unique_ptr<io::ChatFormat> chat;
  std::optional<std::int32_t> eos;
  world.run_and_agree([&] {
    eos = document_end(options, *tokenizer);
    corpus = std::make_unique<io::Corpus>(files, columns_of(options));
  });
  const bool preferences = learns_preferences(options);
  if (!preferences) corpus->find_conversations(world, [] { throw_if_ended("reading rows"); });
  world.run_and_agree([&] {
    chat = preferences ? preference_format(options, *tokenizer, options.text("model"))
                       : chat_format(options, *corpus, *tokenizer, options.text("model"));
    if (chat == nullptr) refuse_chat_options(options);
  });
  log::info("tokenizer " + tokenizer_path(options, options.text("model")) + " | " + tokenizer->describe() +
            " | documents end in " +
            (eos ? std::to_string(*eos) + ":" + std::string(tokenizer->token(*eos)) : "nothing"));
  const auto started = std::chrono::steady_clock::now();
  io::RowSettings rows;
  world.run_and_agree([&] { rows = row_settings(options, options.text("model")); });
  rows.chat = chat.get();
  const io::CorpusReport report =
      io::tokenize_corpus(world, *tokenizer, *corpus,
                          {.out = path, .eos = eos, .rows = rows, .progress = tokenizing_progress(), .check = [] {
                             throw_if_ended("tokenizing");
                           }});
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - started).count();
  warn_of_encoding(report.repairs);
  report_skipped(report.skipped);
  warn_of_left_out(report);
  const auto bytes = static_cast<double>(report.bytes);
  log::info(strfmt("done      %ld documents, ", report.documents) + human_bytes(bytes) +
            strfmt(" | %ld tokens, %.2f bytes each | uint%d | %.2f s, ", report.tokens,
                   bytes / static_cast<double>(report.tokens), 8 * report.width, seconds) +
            human_bytes(bytes / seconds) + "/s on " + std::to_string(world.size()) +
            (world.size() == 1 ? " rank | " : " ranks | ") + path);
  world.run_and_agree([&] {
    if (world.rank() == 0 && options.integer("preview") > 0) preview(path, options.integer("preview"), *tokenizer);
  });
}

}  // namespace tessera::jobs
