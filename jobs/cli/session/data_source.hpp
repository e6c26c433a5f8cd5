// SPDX-License-Identifier: Apache-2.0
#pragma once
// What the data options name: files, columns, and how conversations become text.

#include <memory>
#include <string>
#include <vector>

#include "io/chat/chat_text.hpp"
#include "io/chat/row_form.hpp"
#include "io/corpus/document_encoder.hpp"
#include "io/data/data_files.hpp"
#include "io/data/packing.hpp"
#include "jobs/cli/options/options.hpp"

namespace tessera::jobs {

/// The files of --dataset or --val_dataset, with directories and patterns expanded. Throws Error (data).
[[nodiscard]] std::vector<io::DataFile> files_of(const Options& options, const char* option);
/// --columns. Throws Error (usage).
[[nodiscard]] io::Columns columns_of(const Options& options);
/// --strict, --data_seed; without a chat format.
[[nodiscard]] io::RowSettings row_settings(const Options& options);
/// A hash of what the documents made of rows depend on, beside the rows and the tokenizer.
[[nodiscard]] std::uint64_t settings_hash(const Options& options, const io::ChatFormat* chat);

/// "binpack" or "sequential" with --packing, else "padded": of samples that hold complete documents.
[[nodiscard]] std::string packing_word(const Options& options);
/// --truncation_strategy; if it is not given, "delete" for conversations and "split" for texts.
[[nodiscard]] std::string truncation_word(const Options& options, bool conversations);

/// Throws Error (usage) for options of conversations that are given, where the data has none.
void refuse_chat_options(const Options& options);

/// Throws Error (data) for a name of --dataset or --val_dataset that is one of a hub, with the command that downloads
/// it.
void refuse_hub_names(const Options& options);

/// Throws Error (usage) for options of rows that are given, where all files hold tokens.
void refuse_row_options(const Options& options);
/// --system: a text, or the contents of a file without the newline at its end. Throws Error (usage): NAME.txt that is
/// no file.
[[nodiscard]] std::string system_text(const Options& options);

/// W042: files whose rows have two forms.
void warn_of_documents(const io::Corpus& corpus);
/// W043: marks of turns that a template of the program writes (--template), and the tokenizer has no token for.
void warn_of_markers(const Options& options, const io::TextTokenizer& tokenizer);
/// W044: a notable share of documents is left out since they are longer than `tokens`. `what`: "training data".
void warn_of_long_documents(const io::PackingCount& count, std::int64_t tokens, const char* what);

/// One line for each of the first rows that were skipped, and a warning with their number.
void report_skipped(const io::SkippedRows& skipped);
/// W045: so many conversations have tools that the chat template leaves out.
void warn_of_tools(std::int64_t conversations);

}  // namespace tessera::jobs
