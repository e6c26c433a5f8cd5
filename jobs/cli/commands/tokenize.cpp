// `tessera tokenize`: text files to an llm.c token file, in parallel.
#include <algorithm>
#include <chrono>

#include "io/data/dataset.hpp"
#include "jobs/cli/commands/commands.hpp"
#include "jobs/cli/options/values.hpp"
#include "jobs/cli/session/tokenized_data.hpp"
#include "runtime/base/log.hpp"

namespace tessera::jobs {

namespace {

/// Prints the first documents of the written file: each token's id and spelling.
void preview(const std::string& path, std::int64_t documents, const io::TextTokenizer& tokenizer,
             std::optional<std::int32_t> eos) {
  constexpr std::int64_t max_read = 1 << 16;
  constexpr std::int64_t max_shown = 40;
  const io::Dataset data = io::open_dataset({path});
  std::vector<std::int32_t> ids(static_cast<std::size_t>(std::min(max_read, data.tokens->size())));
  data.tokens->read(0, static_cast<std::int64_t>(ids.size()), ids.data());
  std::size_t at = 0;
  for (std::int64_t n = 1; n <= documents && at < ids.size(); ++n) {
    std::string line;
    std::int64_t count = 0;
    for (bool inside = true; inside && at < ids.size(); ++at) {
      inside = ids[at] != eos;
      if (++count <= max_shown) line += strfmt(" %d:", ids[at]) + std::string(tokenizer.token(ids[at]));
    }
    log::info(strfmt("document %ld, %ld tokens%s:", n, count,
                     at == ids.size() && data.tokens->size() > max_read ? " or more" : "") +
              line + (count > max_shown ? " …" : ""));
  }
}

}  // namespace

void tokenize_command(const Call& call, World& world) {
  const Options& options = call.options();
  for (const char* name : {"dataset", "out"})
    if (!options.has(name))
      throw Error(ExitCode::usage, std::string("tokenize needs --") + name, "command line",
                  "tessera tokenize --model DIR --dataset FILE ... --out FILE.bin");
  const std::string path = options.text("out");
  if (path.size() < 5 || path.substr(path.size() - 4) != ".bin")
    throw options.refuse("out", "the name of a token file ends in .bin", "Give --out NAME.bin");
  const std::shared_ptr<const io::TextTokenizer> tokenizer = load_tokenizer(options, world, options.text("model"));
  if (tokenizer == nullptr)
    throw Error(ExitCode::usage, "no tokenizer was found", options.has("model") ? options.text("model") : "--model",
                "Give --model DIR with a tokenizer.json, or --tokenizer PATH");
  std::unique_ptr<io::Corpus> corpus;
  std::optional<std::int32_t> eos;
  world.run_and_agree([&] {
    eos = document_end(options, *tokenizer);
    corpus = std::make_unique<io::Corpus>(options.list("dataset"));
  });
  log::info("tokenizer " + tokenizer_path(options, options.text("model")) + " | " + tokenizer->describe() +
            " | documents end in " +
            (eos ? std::to_string(*eos) + ":" + std::string(tokenizer->token(*eos)) : "nothing"));
  const auto started = std::chrono::steady_clock::now();
  const io::CorpusReport report = io::tokenize_corpus(
      world, *tokenizer, *corpus, {.out = path, .eos = eos, .progress = progress_lines("          ")});
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - started).count();
  if (report.repaired > 0) log::warn(40, strfmt("%ld invalid UTF-8 sequences: each becomes U+FFFD", report.repaired));
  const auto bytes = static_cast<double>(report.bytes);
  log::info(strfmt("done      %ld documents, ", report.documents) + human_bytes(bytes) +
            strfmt(" | %ld tokens, %.2f bytes each | uint%d | %.2f s, ", report.tokens,
                   bytes / static_cast<double>(report.tokens), 8 * report.width, seconds) +
            human_bytes(bytes / seconds) + "/s on " + std::to_string(world.size()) +
            (world.size() == 1 ? " rank | " : " ranks | ") + path);
  world.run_and_agree([&] {
    if (world.rank() == 0 && options.integer("preview") > 0) preview(path, options.integer("preview"), *tokenizer, eos);
  });
}

}  // namespace tessera::jobs
