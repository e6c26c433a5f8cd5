// SPDX-License-Identifier: Apache-2.0
#pragma once
// What the data options name: files, columns, and how conversations become text.

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "io/chat/chat_text.hpp"
#include "io/chat/row_form.hpp"
#include "io/corpus/tokenize_corpus.hpp"
#include "io/data/data_files.hpp"
#include "io/data/packing.hpp"
#include "io/data/token_file.hpp"
#include "jobs/cli/options/options.hpp"
#include "runtime/comm/world.hpp"

namespace tessera::jobs {

/// The files of --dataset or --val_dataset, with directories and patterns expanded. Throws Error (data).
[[nodiscard]] std::vector<io::DataFile> files_of(const Options& options, const char* option);
/// --columns. Throws Error (usage).
[[nodiscard]] io::Columns columns_of(const Options& options);
/// The tokens that stand for images and videos in the text part of a model; none: of another model. Throws Error (data)
/// for one that is no id.
[[nodiscard]] std::vector<std::int32_t> image_tokens(const std::string& model_directory);
/// The first id that is one of `images`; nothing: none is.
[[nodiscard]] std::optional<std::int32_t> image_token_of(std::span<const std::int32_t> ids,
                                                         std::span<const std::int32_t> images);
/// --strict, --data_seed, and the tokens of images that the config.json of `model_directory` names; without a chat
/// format.
[[nodiscard]] io::RowSettings row_settings(const Options& options, const std::string& model_directory);
/// A hash of what the documents made of rows depend on, beside the rows and the tokenizer.
[[nodiscard]] std::uint64_t settings_hash(const Options& options, const io::ChatFormat* chat);

/// "pairs" with --stage rlhf (of kto: "unpaired", of rm: "rated"), "binpack" or "sequential" with --packing, else
/// "padded": of samples that hold complete documents.
[[nodiscard]] std::string packing_word(const Options& options);
/// --truncation_strategy; if it is not given, "delete" for conversations and "split" for texts.
[[nodiscard]] std::string truncation_word(const Options& options, bool conversations);

/// Throws Error (usage) for options of conversations that are given, where the data has none.
void refuse_chat_options(const Options& options);

/// Throws Error (data) for a name of --dataset or --val_dataset that is one of a hub, with the command that downloads
/// it.
void refuse_hub_names(const Options& options);

/// Throws Error (usage) for --dataset_depends without a command among the data.
void refuse_depends(const Options& options);
/// Throws Error (usage) for options of rows that are given, where all files hold tokens.
void refuse_row_options(const Options& options);
/// --system: a text, or the contents of a file without the newline at its end. Throws Error (usage): NAME.txt that is
/// no file.
[[nodiscard]] std::string system_text(const Options& options);

/// W042: files whose rows have two forms.
void warn_of_documents(const std::vector<std::string>& ambiguous);
/// W043: marks of turns that a template of the program writes (--template), and the tokenizer has no token for.
void warn_of_markers(const Options& options, const io::TextTokenizer& tokenizer);
/// Why no sample could be made of the documents of `what`, which `option` names.
[[nodiscard]] Error no_sample(const io::PackedStream& packed, const char* what, const char* option);
/// W044: a notable share of documents is left out since they are longer than `tokens`, or since truncation left none of
/// their tokens with loss. `what`: "training data".
void warn_of_long_documents(const io::PackingCount& count, std::int64_t tokens, const char* what);

/// Collective. The files that the names stand for; what is left out is reported (W070; an error with --strict). Throws
/// Error (data) on every rank alike.
[[nodiscard]] std::vector<io::DataFile> listed_files(const Options& options, World& world,
                                                     const std::vector<std::string>& names);
/// How copies of commands' output and of compressed files are made.
struct CopyPlace {
  std::function<std::string()> directory;  // for them
  std::function<void(const io::DataFile&)> made =
      nullptr;  // called with each that this rank has made, also before an error
};
/// Collective. io::name_command_outputs.
void name_copies(const Options& options, World& world, std::vector<io::DataFile>& files, const CopyPlace& place);
/// Collective. Runs commands and decompresses files. Throws Error (data; preempted: a stop flag) on every rank alike.
void make_copies(const Options& options, World& world, std::vector<io::DataFile>& files, const CopyPlace& place);
/// W040: so many byte sequences are not UTF-8, so many places in rows not JSON, and were replaced.
void warn_of_encoding(const io::Repairs& repairs);

/// One line for each of the first rows that were skipped, and a warning with their number (W041). W072: those of them
/// that have Python literals. W080: keys of rows
/// and messages that nothing reads.
void report_skipped(const io::SkippedRows& skipped);
/// W075: so many pairs have two equal answers. W045: so many conversations have tools, or reasoning, that the chat
/// template leaves out. W073: --columns names keys that no row has.
void warn_of_left_out(const io::RowReport& report);

}  // namespace tessera::jobs
