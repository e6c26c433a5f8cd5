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

/// One line for each of the first rows that were skipped, and a warning with their number.
void report_skipped(const io::SkippedRows& skipped);

}  // namespace tessera::jobs
