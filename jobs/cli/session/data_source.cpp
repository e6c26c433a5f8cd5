// SPDX-License-Identifier: Apache-2.0
#include "jobs/cli/session/data_source.hpp"

#include <algorithm>
#include <filesystem>

#include "io/chat/chat_template.hpp"
#include "io/data/data_kind.hpp"
#include "io/file/text_file.hpp"
#include "io/tokenizer/byte_hash.hpp"
#include "jobs/cli/options/model_cache.hpp"
#include "jobs/cli/session/setup.hpp"
#include "runtime/base/hash.hpp"
#include "runtime/base/log.hpp"

namespace tessera::jobs {

std::vector<io::DataFile> files_of(const Options& options, const char* option) {
  return io::data_files(options.list(option));
}

io::Columns columns_of(const Options& options) { return io::parse_columns(options.text("columns"), "--columns"); }

io::RowSettings row_settings(const Options& options) {
  return {.strict = options.flag("strict"), .chat = nullptr, .seed = data_seed(options)};
}

std::uint64_t settings_hash(const Options& options, const io::ChatFormat* chat) {
  std::uint64_t hash = chat != nullptr ? chat->hash() : 0;
  for (const auto& [from, to] : columns_of(options)) hash = hash64(to, hash64(from, io::mix(hash, 1)));
  const std::vector<std::string>* const lists[] = {&options.list("dataset"), &options.list("val_dataset")};
  bool selects = false;
  for (const auto* names : lists)
    for (const io::DataFile& file : io::data_files(*names)) selects = selects || file.selects();
  return selects ? io::mix(hash, data_seed(options)) : hash;
}

std::string packing_word(const Options& options) {
  return options.flag("packing") ? options.text("packing_strategy") : "padded";
}

std::string truncation_word(const Options& options, bool conversations) {
  if (options.given("truncation_strategy")) return options.text("truncation_strategy");
  return conversations ? "delete" : "split";
}

void refuse_chat_options(const Options& options) {
  for (const char* name : {"template", "system", "loss_scale"})
    if (options.given(name))
      throw options.refuse(name, std::string("--") + name + " is for conversations, and the data has none",
                           "Leave it out, or give rows of conversations (docs/data.md)");
}

void refuse_hub_names(const Options& options) {
  for (const char* option : {"dataset", "val_dataset"})
    for (const std::string& item : options.list(option))
      if (const std::string name = split_selection(item).first; is_hub_dataset(name))
        throw Error(
            ExitCode::data,
            std::string("--") + option + " " + item + ": no such file or directory, and it is in no local cache",
            options.value(option).source.text,
            "Tessera downloads nothing. To download it from the Hugging Face Hub, where there is a network: " +
                download_dataset_command(name));
}

void refuse_row_options(const Options& options) {
  const auto is_text = [](const io::DataFile& file) { return io::data_kind(file.path) != "bin"; };
  const std::vector<io::DataFile> files = files_of(options, "dataset");
  if (files.empty() || std::ranges::any_of(files, is_text) ||
      std::ranges::any_of(files_of(options, "val_dataset"), is_text))
    return;
  for (const char* name : {"template", "system", "loss_scale", "columns"})
    if (options.given(name))
      throw options.refuse(
          name, std::string("--") + name + " is for text, and " + files.front().path + " holds tokens already",
          "Leave it out, or give it to tessera tokenize, which makes such files");
}

std::string system_text(const Options& options) {
  const std::string given = options.text("system");
  std::error_code no_file;
  if (!std::filesystem::is_regular_file(given, no_file)) {
    if (given.ends_with(".txt")) throw options.refuse("system", "there is no file " + given, "Give a text, or a file");
    return given;
  }
  std::string text = io::read_text(given);
  if (text.ends_with('\n')) text.pop_back();
  return text;
}

void warn_of_documents(const io::Corpus& corpus) {
  for (const std::string& path : corpus.ambiguous())
    log::warn(42, "rows of " + path +
                      " have \"text\" as well as a query and a response: the text is used. Rename it (--columns "
                      "'{\"text\": \"unused\"}') to use the others");
}

void warn_of_markers(const Options& options, const io::TextTokenizer& tokenizer) {
  std::string missing;
  for (const std::string& marker : io::ChatTemplate::markers(options.text("template")))
    if (!tokenizer.id_of(marker)) missing += (missing.empty() ? "" : ", ") + marker;
  if (missing.empty()) return;
  log::warn(43, "--template " + options.text("template") + " marks turns with " + missing +
                    ", which the tokenizer has no token for: it splits them like text. Choose the template that the "
                    "model was made with");
}

void warn_of_long_documents(const io::PackingCount& count, std::int64_t tokens, const char* what) {
  constexpr double share_to_mention = 0.05;
  const auto all = static_cast<double>(count.documents + count.too_long + count.no_loss);
  const double share = static_cast<double>(count.too_long) / all;
  if (count.too_long == 0 || share < share_to_mention) return;
  log::warn(44, strfmt("%.0f%% of the documents of the %s (%ld of %.0f) have more than max_length = %ld tokens and are "
                       "left out: give a larger --max_length, or --truncation_strategy right or left",
                       100 * share, what, count.too_long, all, tokens));
}

void warn_of_tools(std::int64_t conversations) {
  if (conversations == 0) return;
  log::warn(45,
            strfmt("%ld conversations have \"tools\", which the chat template does not read: the model will not see "
                   "them. Give a template that does, with --template",
                   conversations));
}

void report_skipped(const io::SkippedRows& skipped) {
  if (skipped.count == 0) return;
  for (const std::string& named : skipped.named) log::info("skipped   " + named);
  const auto rest = skipped.count - static_cast<std::int64_t>(skipped.named.size());
  log::warn(41, strfmt("%ld rows cannot be used and are skipped", skipped.count) +
                    (rest > 0 ? strfmt(" (%ld are not named)", rest) : "") + ": --strict true stops at the first");
}

}  // namespace tessera::jobs
