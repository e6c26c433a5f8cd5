// SPDX-License-Identifier: Apache-2.0
// `tessera bench tokenizer`: how fast one core tokenizes documents. tests/io/tokenizer/compare.py compares it with
// Hugging Face's library in one run.
#include <algorithm>
#include <chrono>
#include <ctime>
#include <nlohmann/json.hpp>

#include "io/data/rows.hpp"
#include "jobs/bench/bench.hpp"
#include "jobs/cli/options/values.hpp"
#include "jobs/cli/session/tokenized_data.hpp"
#include "runtime/base/log.hpp"

namespace tessera::jobs {

namespace {

std::vector<std::string> documents_of(const io::Corpus& corpus) {
  std::vector<std::string> documents;
  for (const io::Corpus::ByteRange& part : corpus.ranges(~std::size_t{0} >> 1, io::Corpus::Split::never)) {
    const io::RowFormat& format = corpus.format(part.file);
    std::int64_t repaired = 0;
    if (format.layout == io::RowLayout::none) documents.emplace_back(corpus.text(part));
    else
      io::for_each_row(corpus.text(part), format, [&](const io::Row& row) {
        try {
          documents.push_back(io::text_of_row(io::read_row(row.text, format, repaired)));
        } catch (const io::RowError& error) {
          throw io::strict_error(error, corpus.line_name(part.file, part.offset + row.offset));
        }
      });
  }
  return documents;
}

}  // namespace

void bench_tokenizer_command(const Call& call, World& world) {
  const Options& options = call.options();
  if (world.size() != 1)
    throw Error(ExitCode::usage, "bench tokenizer measures one core", "command line", "Start one rank");
  if (!options.has("dataset"))
    throw Error(ExitCode::usage, "bench tokenizer needs --dataset", "command line", "Give --dataset FILE ...");
  const std::shared_ptr<const io::TextTokenizer> tokenizer = load_tokenizer(options, world, options.text("model"));
  if (tokenizer == nullptr)
    throw Error(ExitCode::usage, "no tokenizer was found", "--tokenizer",
                "Give --model DIR with a tokenizer.json, or --tokenizer PATH");
  const std::vector<std::string> documents = documents_of(io::Corpus(io::data_files(options.list("dataset"))));
  double bytes = 0;
  for (const std::string& document : documents) bytes += static_cast<double>(document.size());
  std::vector<double> seconds, cpu;
  std::vector<std::int32_t> ids;
  std::size_t tokens = 0;
  for (std::int64_t repeat = 0; repeat < options.integer("bench_repeats"); ++repeat) {
    io::TextEncoder encoder(*tokenizer);  // with an empty cache each time
    const auto started = std::chrono::steady_clock::now();
    const std::clock_t cpu_started = std::clock();
    tokens = 0;
    for (const std::string& document : documents) {
      ids.clear();
      encoder.encode(document, io::Special::with, ids);
      tokens += ids.size();
    }
    cpu.push_back(static_cast<double>(std::clock() - cpu_started) / CLOCKS_PER_SEC);
    seconds.push_back(std::chrono::duration<double>(std::chrono::steady_clock::now() - started).count());
  }
  std::sort(seconds.begin(), seconds.end());
  const double best = seconds.front(), middle = seconds[seconds.size() / 2],
               best_cpu = *std::min_element(cpu.begin(), cpu.end());
  if (options.flag("json")) {
    const nlohmann::ordered_json json = {{"documents", documents.size()},
                                         {"bytes", bytes},
                                         {"tokens", tokens},
                                         {"best_s", best},
                                         {"median_s", middle},
                                         {"best_cpu_s", best_cpu},
                                         {"repeats", seconds.size()}};
    log::info(json.dump(2));
  } else {
    log::info("tokenizer " + tokenizer->describe());
    log::info(strfmt("          %zu documents, ", documents.size()) + human_bytes(bytes) + ", " + human_count(tokens) +
              strfmt(" tokens | one core: best %.1f MB/s, median %.1f MB/s, by CPU time %.1f MB/s, ",
                     bytes / best / 1e6, bytes / middle / 1e6, bytes / best_cpu / 1e6) +
              human_count(static_cast<double>(tokens) / best) + " tokens/s");
  }
}

}  // namespace tessera::jobs
