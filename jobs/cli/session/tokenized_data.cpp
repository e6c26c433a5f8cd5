// SPDX-License-Identifier: Apache-2.0
#include "jobs/cli/session/tokenized_data.hpp"

#include <chrono>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "io/chat/template_format.hpp"
#include "io/data/data_kind.hpp"
#include "io/file/text_file.hpp"
#include "io/tokenizer/byte_hash.hpp"
#include "io/tokenizer/other_kinds.hpp"
#include "jobs/cli/options/model_cache.hpp"
#include "jobs/cli/session/command_tokens.hpp"
#include "jobs/cli/session/data_source.hpp"
#include "jobs/cli/session/preferences.hpp"
#include "jobs/cli/session/progress.hpp"
#include "jobs/cli/session/start_stop.hpp"
#include "runtime/base/log.hpp"

namespace tessera::jobs {

namespace {
using Clock = std::chrono::steady_clock;
double seconds_since(Clock::time_point then) { return std::chrono::duration<double>(Clock::now() - then).count(); }
constexpr std::uint64_t cache_form = 7;  // increase when the same key would mean other tokens

/// The directory of a tokenizer that --tokenizer names: chat templates lie beside it.
std::string directory_of_tokenizer(const std::string& path) {
  return std::filesystem::is_directory(path) ? path : io::directory_of(path);
}

/// Throws for a plain text in supervised fine-tuning; "": there is none.
void refuse_plain_text(const Options& options, const std::string& path) {
  if (path.empty() || options.text("stage") == "pt") return;
  const bool pairs = options.text("stage") == "rlhf";
  throw Error(
      ExitCode::usage,
      path + " is plain text, and " + (pairs ? "preferences are" : "supervised fine-tuning is") + " learned from rows",
      pairs ? "--stage rlhf" : "--stage sft",
      pairs ? "Give rows of pairs (docs/preferences.md)"
            : "Give rows of conversations (docs/data.md), or train on the text by --stage pt (tessera pt)");
}

/// Throws unless files that are not tokenized need no tokenizer: token files, and texts as bytes.
void require_plain(const Options& options, const std::vector<io::DataFile>& files, bool bytes) {
  const std::string to_do = "Give --tokenizer PATH, or a model's directory with a tokenizer.json";
  for (const io::DataFile& file : files) {
    if (file.selects() && io::data_kind(file.path) != "bin")
      throw Error(ExitCode::usage, "rows are selected while text is tokenized, and " + file.path + " is not",
                  "--dataset", bytes ? to_do : "Name the file alone");
    if (!bytes || io::data_kind(file.path) == "bin") continue;
    const io::MappedFile map(file.content());
    const io::Columns columns = columns_of(options);
    const io::RowFormat format = io::row_format(file.path, map.bytes(), io::column_names(columns));
    if (format.layout == io::RowLayout::none) refuse_plain_text(options, file.path);
    if (io::file_form(file.path, map.bytes(), format, columns).form != io::RowForm::text)
      throw Error(ExitCode::usage, "conversations need a tokenizer, and there is none", file.path, to_do);
  }
  if (bytes && options.given("columns"))
    throw options.refuse("columns", "--columns needs a tokenizer", "Name the column \"text\" in the file");
}
}  // namespace

namespace {

/// True if the run that wrote this directory, or the one above it, had bytes as tokens.
bool was_trained_on_bytes(const std::string& directory) {
  for (const std::string& of : {directory, io::directory_of(directory)}) {
    if (!io::exists(of + "/args.json")) continue;
    const auto args = nlohmann::json::parse(io::read_text(of + "/args.json"), nullptr, false);
    return args.is_object() && args.contains("tokenizer") && args["tokenizer"].is_object() &&
           args["tokenizer"].value("value", nlohmann::json()) == "bytes";
  }
  return false;
}

}  // namespace

std::string tokenizer_path(const Options& options, const std::string& model_directory) {
  std::string word = options.text("tokenizer");
  if (word == "bytes") return "";
  if (word != "auto") return word;
  if (model_directory.empty() || was_trained_on_bytes(model_directory)) return "";
  return io::TextTokenizer::file_at(model_directory);
}

void refuse_without_tokenizer(const Options& options, const std::string& directory) {
  const std::string where = directory.empty() ? options.has("model") ? options.text("model") : "--model" : directory;
  const std::string name = "name a tokenizer.json or its directory by --tokenizer PATH";
  const std::string unread = directory.empty() ? "" : io::unread_tokenizer(directory);
  if (!unread.empty())
    throw Error(ExitCode::usage, "no tokenizer was found: there is no tokenizer.json, and " + unread + " is not read",
                where, io::tokenizer_conversion(directory) + "; or " + name);
  throw Error(ExitCode::usage, "no tokenizer was found", where,
              "Give --model DIR with a tokenizer.json, or " + name +
                  ((options.commands & for_tokenize) != 0 ? "" : "; --tokenizer bytes takes each byte as a token"));
}

void require_bytes(const Options& options, const std::string& model_directory, std::int64_t vocab) {
  constexpr std::int64_t all_bytes = 256;
  for (const std::int32_t image : image_tokens(model_directory))
    if (image < all_bytes)
      throw Error(
          ExitCode::usage, strfmt("without a tokenizer each byte is a token, and token %d stands for an image", image),
          model_directory + "/config.json", "Name the model's tokenizer.json or its directory by --tokenizer PATH");
  if (options.text("tokenizer") != "auto") return;
  if (!model_directory.empty() && was_trained_on_bytes(model_directory)) return;
  if (vocab == all_bytes && (model_directory.empty() || io::unread_tokenizer(model_directory).empty())) return;
  refuse_without_tokenizer(options, model_directory);
}

std::shared_ptr<const io::TextTokenizer> read_tokenizer(const Options& options, const std::string& model_directory) {
  const std::string path = tokenizer_path(options, model_directory);
  if (path.empty()) return nullptr;
  if (options.text("tokenizer") != "auto" && !io::TextTokenizer::exists(path))
    throw options.refuse("tokenizer", "there is no tokenizer.json at " + path,
                         io::unread_tokenizer(path).empty()
                             ? "Give auto, bytes, a directory with a tokenizer.json, or such a file"
                             : io::tokenizer_conversion(path));
  auto tokenizer = std::make_shared<const io::TextTokenizer>(io::TextTokenizer::load(path));
  if (!tokenizer->difference().empty()) log::warn(77, tokenizer->difference());
  return tokenizer;
}

std::shared_ptr<const io::TextTokenizer> load_tokenizer(const Options& options, World& world,
                                                        const std::string& model_directory) {
  std::shared_ptr<const io::TextTokenizer> tokenizer;
  world.run_and_agree([&] { tokenizer = read_tokenizer(options, model_directory); });
  world.require_equal("the tokenizer", tokenizer == nullptr ? "bytes" : strfmt("%016lx", tokenizer->hash()));
  return tokenizer;
}

std::optional<std::int32_t> document_end(const Options& options, const io::TextTokenizer& tokenizer) {
  const std::string word = options.text("eos_token");
  if (word == "none") return std::nullopt;
  const std::optional<std::int32_t> id = word.empty() ? tokenizer.eos_id() : tokenizer.id_of(word);
  if (!id && word.empty())
    throw Error(ExitCode::usage, "the tokenizer's directory does not name the token that ends a document",
                "--eos_token", "Give --eos_token TOKEN, spelled as in tokenizer.json, or none");
  if (!id) throw options.refuse("eos_token", "the tokenizer has no token " + word, "Spell it as in tokenizer.json");
  if (tokenizer.token(*id).empty())
    throw Error(ExitCode::usage, strfmt("the tokenizer has no token with id %d, which ends documents", *id),
                "eos_token_id", "Give --eos_token TOKEN, spelled as in tokenizer.json, or none");
  return id;
}

std::function<void(const io::CorpusProgress&)> tokenizing_progress() {
  return [view = std::make_shared<ProgressView>(Work{.name = "tokens"})](const io::CorpusProgress& progress) {
    (*view)(progress.bytes, progress.all_bytes, human_count(progress.tokens) + " tokens");
  };
}

static std::string template_directory(const Options& options, const std::string& model_directory) {
  return options.text("tokenizer") == "auto" ? model_directory
                                             : directory_of_tokenizer(tokenizer_path(options, model_directory));
}

bool has_chat_template(const Options& options, const std::string& model_directory) {
  return options.given("template") || io::ChatTemplate::is_in(template_directory(options, model_directory));
}

io::ChatTemplate chat_template(const Options& options, const std::string& model_directory) {
  return io::ChatTemplate::load(template_directory(options, model_directory), options.text("template"));
}

namespace {

std::unique_ptr<io::ChatFormat> template_format(const Options& options, const std::string& model_directory) {
  const std::string word = options.text("loss_scale");
  const io::LossRule rule = word == "all"          ? io::LossRule::all
                            : word == "last_round" ? io::LossRule::last_round
                                                   : io::LossRule::standard;
  return std::make_unique<io::TemplateFormat>(chat_template(options, model_directory), rule, system_text(options));
}

}  // namespace

std::unique_ptr<io::ChatFormat> preference_format(const Options& options, const io::TextTokenizer& tokenizer,
                                                  const std::string& model_directory) {
  if (!has_chat_template(options, model_directory)) return nullptr;  // rows that need one are refused by name
  warn_of_markers(options, tokenizer);
  return template_format(options, model_directory);
}

std::unique_ptr<io::ChatFormat> chat_format(const Options& options, const io::Corpus& corpus,
                                            const io::TextTokenizer& tokenizer, const std::string& model_directory) {
  warn_of_documents(corpus.ambiguous());
  if (!corpus.has_conversations()) return nullptr;
  warn_of_markers(options, tokenizer);
  return template_format(options, model_directory);
}

std::string cache_directory(const Options& options) {
  if (options.has("cache_dir")) return options.text("cache_dir");
  if (options.commands != for_eval) return options.text("output_dir") + "/cache";
  if (std::string directory = user_cache_directory(); !directory.empty()) return directory + "/tessera";
  throw Error(ExitCode::usage, "there is no directory for what is made of the data: HOME is not set", "--cache_dir",
              "Give --cache_dir DIR");
}

namespace {

/// A corpus whose tokens are looked for in the cache.
struct CachedCorpus {
  const Options& options;
  World& world;
  const io::TextTokenizer& tokenizer;
  io::Corpus& corpus;
  const std::string& model_directory;
  std::uint64_t content = 0;  // a hash of the data and of the tokenizer
};
struct CacheEntry {
  std::string file;
  bool found = false;
  std::unique_ptr<io::ChatFormat> chat;  // of conversations; null: there are none
};

/// Collective. The token file of the corpus with this chat format, or without conversations.
CacheEntry cache_entry(const CachedCorpus& of, std::unique_ptr<io::ChatFormat> chat) {
  std::uint64_t key = of.content;
  if (const std::uint64_t settings = settings_hash(of.options, chat.get()); settings != 0) key = io::mix(key, settings);
  if (of.options.flag("strict")) key = io::mix(key, 1);  // not a file from which rows were skipped
  const std::string directory = cache_directory(of.options);
  CacheEntry entry{directory + strfmt("/tokens-%016lx.bin", key), false, std::move(chat)};
  bool there = false;
  of.world.run_and_agree([&] {
    if (of.world.rank() != 0) return;
    io::make_directories(directory);
    there = is_complete_token_file(entry.file, entry.chat != nullptr || learns_preferences(of.options));
  });
  entry.found = of.world.max(there ? 1 : 0) == 1;
  return entry;
}

/// The template's format; null: there is none, which is an error only if there are conversations.
std::unique_ptr<io::ChatFormat> format_if_any(const Options& options, const std::string& model_directory) {
  try {
    return template_format(options, model_directory);
  } catch (const Error&) { return nullptr; }
}

/// Collective. The entry of the conversations that stand behind texts; none: it is not there, or no chat template is.
std::optional<CacheEntry> late_conversations(const CachedCorpus& of) {
  std::unique_ptr<io::ChatFormat> chat = format_if_any(of.options, of.model_directory);
  if (of.world.max(chat == nullptr ? 1 : 0) == 1) return std::nullopt;
  CacheEntry entry = cache_entry(of, std::move(chat));
  return entry.found ? std::optional(std::move(entry)) : std::nullopt;
}

/// Collective. Rows behind the first one of each file are searched for conversations only where the cache has tokens of
/// the corpus neither with nor without.
CacheEntry find_tokens(const CachedCorpus& of) {
  if (learns_preferences(of.options)) {
    std::unique_ptr<io::ChatFormat> chat;
    of.world.run_and_agree([&] { chat = preference_format(of.options, of.tokenizer, of.model_directory); });
    return cache_entry(of, std::move(chat));
  }
  if (!of.corpus.has_conversations()) {
    std::optional<CacheEntry> found = cache_entry(of, nullptr);
    if (!found->found) found = late_conversations(of);
    if (found) {
      warn_of_documents(of.corpus.ambiguous());
      if (found->chat != nullptr) warn_of_markers(of.options, of.tokenizer);
      return std::move(*found);
    }
    of.corpus.find_conversations(of.world, [] { throw_if_stopped("reading rows"); });
  }
  std::unique_ptr<io::ChatFormat> chat;
  of.world.run_and_agree([&] { chat = chat_format(of.options, of.corpus, of.tokenizer, of.model_directory); });
  return cache_entry(of, std::move(chat));
}

/// A hash of the tokenizer and of the options that decide a corpus' tokens beside settings_hash.
std::uint64_t hash_of_tokens(const io::TextTokenizer& tokenizer, std::optional<std::int32_t> eos,
                             const std::vector<std::int32_t>& images) {
  std::uint64_t hash = io::mix(io::mix(cache_form, tokenizer.hash()), static_cast<std::uint64_t>(eos.value_or(-1)));
  for (const std::int32_t image : images) hash = io::mix(hash, static_cast<std::uint64_t>(image));
  return hash;
}

/// Collective. record_of_tokens of files with a command; "": they have none.
std::string record_of(const Options& options, World& world, const io::TextTokenizer& tokenizer,
                      const std::vector<io::DataFile>& files, const std::string& model_directory) {
  std::string record;
  if (!has_commands(files)) return record;
  world.run_and_agree([&] {
    const std::uint64_t key = io::mix(
        hash_of_tokens(tokenizer, document_end(options, tokenizer), row_settings(options, model_directory).images),
        settings_hash(options, format_if_any(options, model_directory).get()));
    record = record_of_tokens(options, files, io::mix(key, options.flag("strict") ? 1 : 0));
  });
  return record;
}

/// Collective. tokenized() of files of which commands print some, from what an earlier run has kept; none: it has not.
std::optional<TokenizedData> tokenized_before(const Options& options, World& world, const io::TextTokenizer* tokenizer,
                                              const std::vector<io::DataFile>& files,
                                              const std::string& model_directory) {
  if (tokenizer == nullptr || !has_commands(files)) return std::nullopt;
  const std::string record = record_of(options, world, *tokenizer, files, model_directory);
  const std::optional<CommandTokens> found = find_command_tokens(world, record);
  if (!found) return std::nullopt;
  world.run_and_agree([&] { refuse_plain_text(options, found->plain_text); });
  warn_of_documents(found->ambiguous);
  if (found->conversations) warn_of_markers(options, *tokenizer);
  for (const io::DataFile& file : files) {
    if (!io::is_command(file.path)) continue;
    log::info("ran once  " + file.path + " | its tokens are kept: remove " + record + " to have the command run again");
    world.run_on_rank_0([&] {  // of a run that was killed before it removed them
      io::remove_quietly(file.copy);
    });
  }
  return TokenizedData{{{.path = found->tokens, .rows = {}, .share = {}}}, found->tokens + " (found)"};
}

}  // namespace

TokenizedData tokenized(const Options& options, World& world, const io::TextTokenizer* tokenizer,
                        const std::vector<io::DataFile>& files, const std::string& model_directory) {
  if (files.empty() || io::data_kind(files.front().path) == "bin" || tokenizer == nullptr) {
    world.run_and_agree([&] { require_plain(options, files, tokenizer == nullptr); });
    return {files, ""};
  }
  const Clock::time_point started = Clock::now();
  const std::string record = record_of(options, world, *tokenizer, files, model_directory);
  std::unique_ptr<io::Corpus> corpus;
  std::optional<std::int32_t> eos;
  io::RowSettings rows;
  world.run_and_agree([&] {
    rows = row_settings(options, model_directory);
    eos = document_end(options, *tokenizer);
    corpus = std::make_unique<io::Corpus>(files, columns_of(options));
    refuse_plain_text(options, corpus->plain_text());
  });
  const std::uint64_t text_of = hash_of_tokens(*tokenizer, eos, rows.images);
  const CacheEntry entry = find_tokens({.options = options,
                                        .world = world,
                                        .tokenizer = *tokenizer,
                                        .corpus = *corpus,
                                        .model_directory = model_directory,
                                        .content = io::mix(text_of, corpus->content_hash(world))});
  std::string how = "found";
  if (!entry.found) {
    rows.chat = entry.chat.get();
    const io::CorpusReport report = io::tokenize_corpus(
        world, *tokenizer, *corpus,
        {.out = entry.file, .eos = eos, .rows = rows, .progress = tokenizing_progress(), .check = [] {
           throw_if_stopped("tokenizing");
         }});
    const double seconds = seconds_since(started);
    how = strfmt("made in %.2f s, ", seconds) + human_bytes(static_cast<double>(report.bytes) / seconds) + "/s";
  }
  // A file that has changed since may have been read before or after.
  if (!record.empty() && record == record_of(options, world, *tokenizer, files, model_directory))
    keep_command_tokens(world, record,
                        {.tokens = entry.file,
                         .conversations = entry.chat != nullptr,
                         .ambiguous = corpus->ambiguous(),
                         .plain_text = corpus->plain_text()},
                        files);
  return {{{.path = entry.file, .rows = {}, .share = {}}}, entry.file + " (" + how + ")"};
}

TokenizedData prepared_tokens(const Options& options, World& world, const io::TextTokenizer* tokenizer,
                              const std::vector<std::string>& names, const std::string& model_directory) {
  std::vector<io::DataFile> files = listed_files(options, world, names);
  const CopyPlace place{.directory = [&] { return cache_directory(options); }};
  name_copies(options, world, files, place);
  if (std::optional<TokenizedData> kept = tokenized_before(options, world, tokenizer, files, model_directory))
    return std::move(*kept);
  make_copies(options, world, files, place);
  return tokenized(options, world, tokenizer, files, model_directory);
}

}  // namespace tessera::jobs
