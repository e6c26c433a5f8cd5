// SPDX-License-Identifier: Apache-2.0
#include "jobs/cli/session/data_source.hpp"

#include <algorithm>
#include <filesystem>

#include "io/chat/chat_template.hpp"
#include "io/corpus/decompressed_files.hpp"
#include "io/data/data_kind.hpp"
#include "io/file/text_file.hpp"
#include "io/tokenizer/byte_hash.hpp"
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

namespace {

void report_left_out(const Options& options, const std::vector<io::LeftOut>& left_out) {
  constexpr std::size_t most_named = 100;
  std::size_t count = 0;
  for (std::size_t i = 0; i < left_out.size(); ++i) {
    const auto& [path, why, may_be_data] = left_out[i];
    if (i < most_named) log::info("left out  " + path + ": " + why);
    if (!may_be_data) continue;
    if (options.flag("strict"))
      throw Error(ExitCode::data, "a file of a directory or pattern is not read: " + why, path,
                  "Move it away, name the files to read, or give --strict false to leave it out");
    ++count;
  }
  const std::string rest =
      left_out.size() > most_named ? strfmt(" (%zu are not named)", left_out.size() - most_named) : "";
  if (count > 0)
    log::warn(70, strfmt("%zu files of the data's directories and patterns are left out", count) + rest +
                      ": each is named above with the reason");
}

}  // namespace

std::vector<io::DataFile> prepared_files(const Options& options, World& world, const std::vector<std::string>& names,
                                         const std::function<std::string()>& directory) {
  std::vector<io::DataFile> files;
  world.run_and_agree([&] {
    std::vector<io::LeftOut> left_out;
    files = io::data_files(names, &left_out);
    report_left_out(options, left_out);
  });
  io::decompress_files(world, files, directory);
  for (const io::DataFile& file : files)
    if (!file.decompressed.empty()) log::info("unpacked  " + file.path + " in " + file.decompressed);
  return files;
}

void warn_of_encoding(const io::Repairs& repairs) {
  const auto& [invalid, replaced] = repairs;
  if (invalid == 0 && replaced == 0) return;
  std::string what;
  if (invalid > 0) what = strfmt("%ld byte sequences of the text are not UTF-8: each became U+FFFD", invalid);
  if (replaced > 0)
    what += (what.empty() ? "" : "; ") +
            strfmt("%ld lone surrogates, NaN or Infinity in rows became U+FFFD or null", replaced);
  log::warn(40, what + ". Correct the files; --strict true stops at the first");
}

void report_skipped(const io::SkippedRows& skipped) {
  if (skipped.count == 0) return;
  for (const std::string& named : skipped.named) log::info("skipped   " + named);
  const auto rest = skipped.count - static_cast<std::int64_t>(skipped.named.size());
  log::warn(41, strfmt("%ld rows cannot be used and are skipped", skipped.count) +
                    (rest > 0 ? strfmt(" (%ld are not named)", rest) : "") + ": --strict true stops at the first");
}

}  // namespace tessera::jobs
