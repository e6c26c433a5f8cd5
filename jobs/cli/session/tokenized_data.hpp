#pragma once
// How a run reads text: the tokenizer that its options name, and text files turned into token files, kept in a cache.

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "io/tokenizer/corpus.hpp"
#include "io/tokenizer/tokenizer.hpp"
#include "jobs/cli/options/options.hpp"
#include "runtime/comm/world.hpp"

namespace tessera::jobs {

/// The tokenizer of --tokenizer: PATH's; `auto`: that of `model_directory`, if there is one; else, and for `bytes`,
/// null. Throws Error (usage: there is none at PATH; data).
[[nodiscard]] std::shared_ptr<const io::TextTokenizer> read_tokenizer(const Options& options,
                                                                      const std::string& model_directory);
/// Collective: the same, read on every rank, alike or an Error (usage) everywhere.
[[nodiscard]] std::shared_ptr<const io::TextTokenizer> load_tokenizer(const Options& options, World& world,
                                                                      const std::string& model_directory);
/// The file that read_tokenizer reads; "" for bytes.
[[nodiscard]] std::string tokenizer_path(const Options& options, const std::string& model_directory);

/// What ends a document: --eos_token (a token, or `none`), else what the tokenizer's directory says. Throws Error
/// (usage): no such token; none is named anywhere.
[[nodiscard]] std::optional<std::int32_t> document_end(const Options& options, const io::TextTokenizer& tokenizer);

/// "120.00 MiB of 1.20 GiB | 26.1M tokens | 31.20 MiB/s", at most every few seconds.
[[nodiscard]] std::function<void(const io::CorpusProgress&)> progress_lines(const std::string& what);

struct TokenizedData {
  std::vector<std::string> paths;  // what open_dataset is to open
  std::string line;  // for people: where the tokens lie, and whether they were made now; "" if nothing was done
};
/// Collective. Text and .jsonl files as one token file in --cache_dir, named by a hash of the tokenizer, the end of
/// documents and the files' contents; made if it is not there. .bin files, and any file without a tokenizer, stay as
/// they are.
[[nodiscard]] TokenizedData tokenized(const Options& options, World& world, const io::TextTokenizer* tokenizer,
                                      const std::vector<std::string>& paths);

}  // namespace tessera::jobs
