// SPDX-License-Identifier: Apache-2.0
#pragma once
// The tokenizer that the options name, and the cache of token files made from text.

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "io/chat/chat_template.hpp"
#include "io/chat/chat_text.hpp"
#include "io/corpus/tokenize_corpus.hpp"
#include "io/tokenizer/tokenizer.hpp"
#include "jobs/cli/options/options.hpp"
#include "runtime/comm/world.hpp"

namespace tessera::jobs {

/// By --tokenizer: a PATH's; with `auto` that of `model_directory`, or null if it has none that can be read or its
/// model was trained on bytes (args.json); null for `bytes`. W077: transformers reads it otherwise. Throws Error
/// (usage: there is none at PATH; data).
[[nodiscard]] std::shared_ptr<const io::TextTokenizer> read_tokenizer(const Options& options,
                                                                      const std::string& model_directory);
/// Collective: the same on every rank; throws Error (usage) on every rank if the ranks read different ones.
[[nodiscard]] std::shared_ptr<const io::TextTokenizer> load_tokenizer(const Options& options, World& world,
                                                                      const std::string& model_directory);
/// For text where read_tokenizer found no tokenizer. Throws Error (usage) unless the model is one of bytes: --tokenizer
/// bytes is given, or the model of `model_directory` has been trained so (args.json), or the 256 bytes are its
/// vocabulary (`vocab`) in a directory without any file of a tokenizer. Says what converts the files that are there.
/// Throws Error (usage) too where a byte's token stands for an image or a video.
void require_bytes(const Options& options, const std::string& model_directory, std::int64_t vocab);
/// Throws Error (usage): no tokenizer was found in `directory`; with what converts the files that are there.
[[noreturn]] void refuse_without_tokenizer(const Options& options, const std::string& directory);
/// The file that read_tokenizer reads; "" for bytes.
[[nodiscard]] std::string tokenizer_path(const Options& options, const std::string& model_directory);

/// The id that ends a document: --eos_token (a token, or `none`), else what the tokenizer's directory names. Throws
/// Error (usage): no such token; none is named.
[[nodiscard]] std::optional<std::int32_t> document_end(const Options& options, const io::TextTokenizer& tokenizer);

/// Shows the progress of tokenizing (session/progress.hpp).
[[nodiscard]] std::function<void(const io::CorpusProgress&)> tokenizing_progress();

/// --cache_dir; without it, that of the run, or for eval, which has none, one of the user. Throws Error (usage): there
/// is none.
[[nodiscard]] std::string cache_directory(const Options& options);

struct TokenizedData {
  std::vector<io::DataFile> files;  // for open_dataset
  std::string line;                 // for the log: the token file, and whether it was made now; "" if there is none
};
/// Collective. Tokenizes files of text and rows into one token file in --cache_dir, unless it is there: its name has a
/// hash of the tokenizer, the end of documents, the files' contents and, of conversations, of the chat template of
/// `model_directory` and its options. Rows are searched for conversations behind the first one of each file
/// (Corpus::find_conversations) only where it is not there. What became of the rows is in the token file's report
/// (row_report.hpp), and every run that reads it warns. .bin files, and texts without a tokenizer, are returned as they
/// are. What commands have printed is removed once the tokens are there (command_tokens.hpp). Throws Error (usage: rows
/// that need a tokenizer or a chat template, plain text in --stage sft; data).
[[nodiscard]] TokenizedData tokenized(const Options& options, World& world, const io::TextTokenizer* tokenizer,
                                      const std::vector<io::DataFile>& files, const std::string& model_directory);

/// Collective. tokenized() of the files that the names stand for (listed_files, make_copies in --cache_dir). Where
/// commands print some of them, and an earlier run has kept the tokens with the same options, nothing is run or read.
[[nodiscard]] TokenizedData prepared_tokens(const Options& options, World& world, const io::TextTokenizer* tokenizer,
                                            const std::vector<std::string>& names, const std::string& model_directory);

/// Whether chat_template has one. Throws Error (data): a file of it is not valid.
[[nodiscard]] bool has_chat_template(const Options& options, const std::string& model_directory);
/// The chat template of `model_directory`, or --template. Throws Error (usage, data): there is none, or it is not
/// valid.
[[nodiscard]] io::ChatTemplate chat_template(const Options& options, const std::string& model_directory);

/// How conversations become text and loss, by the chat template in `model_directory` (--template), --system and
/// --loss_scale; null if `corpus` has none. Throws Error (usage, data): there is no template, or it is not valid.
[[nodiscard]] std::unique_ptr<io::ChatFormat> chat_format(const Options& options, const io::Corpus& corpus,
                                                          const io::TextTokenizer& tokenizer,
                                                          const std::string& model_directory);
/// The same of rows of preferences; null: the model has no chat template.
[[nodiscard]] std::unique_ptr<io::ChatFormat> preference_format(const Options& options,
                                                                const io::TextTokenizer& tokenizer,
                                                                const std::string& model_directory);

}  // namespace tessera::jobs
