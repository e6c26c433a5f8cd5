// SPDX-License-Identifier: Apache-2.0
#include "jobs/cli/session/data_source.hpp"

#include <algorithm>
#include <filesystem>
#include <limits>
#include <nlohmann/json.hpp>

#include "io/chat/chat_template.hpp"
#include "io/corpus/command_output.hpp"
#include "io/corpus/decompressed_files.hpp"
#include "io/data/data_kind.hpp"
#include "io/file/text_file.hpp"
#include "io/tokenizer/byte_hash.hpp"
#include "io/tokenizer/utf8.hpp"
#include "jobs/cli/options/model_cache.hpp"
#include "jobs/cli/session/preferences.hpp"
#include "jobs/cli/session/reward_model.hpp"
#include "jobs/cli/session/setup.hpp"
#include "jobs/cli/session/signals.hpp"
#include "jobs/cli/session/start_stop.hpp"
#include "models/wrappers.hpp"
#include "runtime/base/hash.hpp"
#include "runtime/base/log.hpp"

namespace tessera::jobs {

std::vector<io::DataFile> files_of(const Options& options, const char* option) {
  return io::data_files(options.list(option));
}

io::Columns columns_of(const Options& options) { return io::parse_columns(options.text("columns"), "--columns"); }

std::vector<std::int32_t> image_tokens(const std::string& model_directory) {
  const std::string path = model_directory + "/config.json";
  if (model_directory.empty() || !io::exists(path)) return {};
  const auto config = nlohmann::json::parse(io::read_text(path), nullptr, /*allow_exceptions=*/false);
  std::vector<std::int32_t> tokens;
  if (!config.is_object() || !config.contains("model_type") || !config.at("model_type").is_string()) return tokens;
  if (!models::is_text_part(config.at("model_type").get<std::string>())) return tokens;
  for (const char* key : {"image_token_id", "image_token_index", "video_token_id"})
    if (const auto id = config.find(key); id != config.end() && !id->is_null()) {
      if (!id->is_number_integer() || *id < 0 || *id > std::numeric_limits<std::int32_t>::max())
        throw Error(ExitCode::data, std::string(key) + " is not a token id", path, "Fetch the file again");
      tokens.push_back(id->get<std::int32_t>());
    }
  return tokens;
}

std::optional<std::int32_t> image_token_of(std::span<const std::int32_t> ids, std::span<const std::int32_t> images) {
  const auto found = std::ranges::find_first_of(ids, images);
  return found == ids.end() ? std::nullopt : std::optional(*found);
}

io::RowSettings row_settings(const Options& options, const std::string& model_directory) {
  return {.strict = options.flag("strict"),
          .chat = nullptr,
          .seed = data_seed(options),
          .pairs = learns_preferences(options),
          .margins = learns_rewards(options),
          .labels = learns_labels(options),
          .images = image_tokens(model_directory)};
}

std::uint64_t settings_hash(const Options& options, const io::ChatFormat* chat) {
  std::uint64_t hash = chat != nullptr ? chat->hash() : 0;
  if (learns_preferences(options))
    hash = io::mix(hash, hash64(packing_word(options) == "unpaired" ? "labels" : packing_word(options)));
  for (const auto& [from, to] : columns_of(options)) hash = hash64(to, hash64(from, io::mix(hash, 1)));
  const std::vector<std::string>* const lists[] = {&options.list("dataset"), &options.list("val_dataset")};
  bool selects = false;
  for (const auto* names : lists)
    for (const io::DataFile& file : io::data_files(*names)) selects = selects || file.selects();
  return selects ? io::mix(hash, data_seed(options)) : hash;
}

std::string packing_word(const Options& options) {
  if (learns_rewards(options)) return "rated";
  if (learns_preferences(options)) return learns_labels(options) ? "unpaired" : "pairs";
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

void refuse_depends(const Options& options) {
  if (!options.given("dataset_depends")) return;
  for (const char* name : {"dataset", "val_dataset"})
    if (std::ranges::any_of(options.list(name), io::is_command)) return;
  throw options.refuse("dataset_depends", "--dataset_depends names files that commands read, and no data set is one",
                       "Leave it out, or give --dataset 'cmd:COMMAND'");
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
  std::string given = options.text("system");
  std::error_code no_file;
  if (std::filesystem::is_directory(given, no_file))
    throw options.refuse("system", given + " is a directory", "Give a text, or a file");
  if (!std::filesystem::is_regular_file(given, no_file)) {
    if (given.ends_with(".txt")) throw options.refuse("system", "there is no file " + given, "Give a text, or a file");
    return given;
  }
  std::string text = io::read_text(given);
  if (io::utf8::valid_prefix(text) != text.size()) throw io::not_utf8_error(given);
  if (text.starts_with("\xEF\xBB\xBF")) text.erase(0, 3);
  if (text.ends_with('\n')) text.pop_back();
  if (text.ends_with('\r')) text.pop_back();
  if (text.empty()) throw options.refuse("system", given + " has no text", "Leave it out, or give a text");
  return text;
}

void warn_of_documents(const std::vector<std::string>& ambiguous) {
  for (const std::string& path : ambiguous)
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

Error no_sample(const io::PackedStream& packed, const char* what, const char* option) {
  const io::PackingCount& count = packed.count();
  if (count.too_long > 0)
    return Error(ExitCode::data,
                 strfmt("no document of the %s can be used: %ld have more than max_length = %ld tokens", what,
                        count.too_long, packed.tokens()),
                 option, "Give a larger --max_length, or --truncation_strategy right");
  if (option == std::string("--split_dataset_ratio") && count.documents + count.no_loss + count.dropped == 0)
    return Error(ExitCode::data, strfmt("the %s has no document: the share is less than the last one", what), option,
                 "Give a larger share, or more data");
  return Error(ExitCode::data,
               strfmt("the %s has no document of two tokens or more, one of them with loss, within %ld tokens", what,
                      packed.tokens()),
               option, "Give more data, a larger --max_length, or --truncation_strategy left");
}

void warn_of_long_documents(const io::PackingCount& count, std::int64_t tokens, const char* what) {
  constexpr double share_to_mention = 0.05;
  const std::int64_t left_out = count.too_long + count.cut_no_loss;
  const auto all = static_cast<double>(count.documents + count.too_long + count.no_loss);
  const double share = static_cast<double>(left_out) / all;
  if (left_out == 0 || share < share_to_mention) return;
  const std::string truncated = count.cut_no_loss > 0
                                    ? strfmt(" (of %ld, truncation left no token with loss)", count.cut_no_loss)
                                    : std::string();
  log::warn(44, strfmt("%.0f%% of the documents of the %s (%ld of %.0f) have more than max_length = %ld tokens and are "
                       "left out%s: give a larger --max_length, or --truncation_strategy %s",
                       100 * share, what, left_out, all, tokens, truncated.c_str(),
                       count.too_long > 0 ? "right or left" : "left"));
}

void warn_of_left_out(const io::RowReport& report) {
  if (report.equal_pairs > 0)
    log::warn(75, strfmt("in %ld of %ld pairs the chosen and the rejected answer are the same: nothing is learned from "
                         "them. Leave them out of the data",
                         report.equal_pairs, report.pairs));
  if (const std::int64_t answers = report.labelled + 2 * report.pairs;
      report.after_think > 0 && report.after_think < answers)
    log::warn(88, strfmt("%ld of %ld labelled answers begin with an empty think block, which has no loss and counts as "
                         "part of the prompt: beside answers with reasoning, the KL is of other texts than TRL's",
                         report.after_think, answers));
  if (report.without_tools > 0)
    log::warn(45,
              strfmt("%ld conversations have \"tools\", which the chat template does not read: the model will not see "
                     "them. Give a template that does, with --template",
                     report.without_tools));
  if (report.without_reasoning > 0)
    log::warn(45, strfmt("%ld conversations have reasoning that the chat template leaves out: the model does not learn "
                         "it. Give a template that prints it, with --template",
                         report.without_reasoning));
  if (report.without_messages > 0)
    log::warn(45, strfmt("%ld conversations have a message of the system, the user or a tool that the chat template "
                         "leaves out: the model will not see it. Give a template that prints it, with --template",
                         report.without_messages));
  std::string absent;
  for (const std::string& key : report.absent_columns) absent += (absent.empty() ? "\"" : ", \"") + key + "\"";
  if (!absent.empty())
    log::warn(73, "--columns renames " + absent + ", which no row of the data has: write the names as in the files");
}

namespace {

void warn_of_unread(const io::UnreadKeys& unread) {
  if (unread.counts.empty()) return;
  constexpr std::size_t most = 12;
  std::vector<std::pair<std::string, std::int64_t>> keys(unread.counts.begin(), unread.counts.end());
  std::ranges::stable_sort(keys, [](const auto& a, const auto& b) { return a.second > b.second; });
  std::string named;
  for (std::size_t i = 0; i < std::min(keys.size(), most); ++i)
    named += (i > 0 ? ", \"" : "\"") + keys[i].first + strfmt("\" (%ld rows)", keys[i].second);
  if (keys.size() > most || unread.others > 0)
    named += strfmt(" and %zu%s more", keys.size() - std::min(keys.size(), most), unread.others > 0 ? " or" : "");
  log::warn(80,
            "rows have keys that are not read: " + named +
                ". Rename those that are meant with --columns, or leave them out: --columns '{\"KEY\": \"unused\"}'");
}

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

std::vector<io::DataFile> listed_files(const Options& options, World& world, const std::vector<std::string>& names) {
  std::vector<io::DataFile> files;
  world.run_and_agree([&] {
    std::vector<io::LeftOut> left_out;
    files = io::data_files(names, &left_out);
    report_left_out(options, left_out);
  });
  return files;
}

void name_copies(const Options& options, World& world, std::vector<io::DataFile>& files, const CopyPlace& place) {
  io::name_command_outputs(world, files, {.directory = place.directory, .depends = options.list("dataset_depends")});
}

void make_copies(const Options& options, World& world, std::vector<io::DataFile>& files, const CopyPlace& place) {
  std::optional<EndSignals> signals;  // tokenize has its own
  if ((options.commands & for_tokenize) == 0 && std::ranges::any_of(files, io::is_command, &io::DataFile::path))
    signals.emplace();
  io::run_commands(world, files,
                   {.directory = place.directory,
                    .depends = options.list("dataset_depends"),
                    .starts = [](const io::DataFile& file) { log::info("running   " + file.path); },
                    .made =
                        [&](const io::DataFile& file, bool ran) {
                          log::info(ran ? "rows      in " + file.copy
                                        : "ran once  " + file.path + " | rows in " + file.copy +
                                              ": remove it to have the command run again");
                          if (ran && place.made) place.made(file);
                        },
                    .check = [] { throw_if_stopped("running a command of the data"); }});
  io::decompress_files(world, files, {.directory = place.directory, .made = place.made, .check = [] {
                                        throw_if_stopped("decompressing");
                                      }});
  for (const io::DataFile& file : files)
    if (!file.copy.empty() && !io::is_command(file.path)) log::info("unpacked  " + file.path + " in " + file.copy);
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
  warn_of_unread(skipped.unread);
  if (skipped.count == 0) return;
  for (const std::string& named : skipped.named) log::info("skipped   " + named);
  auto rest = skipped.count - static_cast<std::int64_t>(skipped.named.size());
  for (const auto& [what, of] : skipped.literals) {
    rest -= of.rows;
    log::warn(72, strfmt("%ld rows have a Python literal (single quotes, True, None) where JSON is expected, and are "
                         "skipped: %s is one, the first in %s. Write the file again with json.dumps(...) in place of "
                         "str(...)",
                         of.rows, what.c_str(), of.first.c_str()));
  }
  log::warn(41, strfmt("%ld rows cannot be used and are skipped", skipped.count) +
                    (rest > 0 ? strfmt(" (%ld are not named)", rest) : "") + ": --strict true stops at the first");
}

}  // namespace tessera::jobs
