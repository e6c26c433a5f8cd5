// SPDX-License-Identifier: Apache-2.0
// Opens a run's data: files, validation split, sample counts; checks ids against the vocabulary.
#include <algorithm>
#include <cmath>
#include <filesystem>
#include <optional>

#include "io/data/data_kind.hpp"
#include "io/data/packing.hpp"
#include "io/data/selected_stream.hpp"
#include "io/tokenizer/document_ids.hpp"
#include "jobs/cli/session/data_source.hpp"
#include "jobs/cli/session/packed_samples.hpp"
#include "jobs/cli/session/preferences.hpp"
#include "jobs/cli/session/reward_model.hpp"
#include "jobs/cli/session/setup.hpp"
#include "jobs/cli/session/tokenized_data.hpp"
#include "runtime/base/log.hpp"
#include "runtime/exec/batches.hpp"

namespace tessera::jobs {

namespace {

io::SampleCount require_samples(const io::TokenStream& tokens, std::int64_t length, const char* what,
                                const char* option) {
  const io::SampleCount count = io::count_samples(tokens, length);
  if (count.samples < 1 && tokens.packed() != nullptr) throw no_sample(*tokens.packed(), what, option);
  if (tokens.packed() != nullptr) warn_of_long_documents(tokens.packed()->count(), length, what);
  if (count.samples < 1) {
    throw Error(ExitCode::data,
                strfmt("the %s has %ld tokens; one sample takes max_length + 1 = %ld", what, tokens.size(), length + 1),
                option, "Give more data, or a smaller --max_length");
  }
  return count;
}

/// True if something has to be tokenized: .bin files are tokens already, and then no tokenizer is looked for.
bool reads_text(const Options& options) {
  const auto is_text = [](const io::DataFile& file) { return io::data_kind(file.path) != "bin"; };
  for (const char* name : {"dataset", "val_dataset"})
    if (std::ranges::any_of(files_of(options, name), is_text)) return true;
  return options.has("sample_prompt") || options.has("prompt_file");
}

/// The tokenizer of the model; null only where its tokens are bytes.
std::shared_ptr<const io::TextTokenizer> tokenizer_of(const Options& options, World& world, const models::Model& model,
                                                      const std::string& model_directory) {
  auto tokenizer = load_tokenizer(options, world, model_directory);
  world.run_and_agree([&] {
    if (tokenizer != nullptr) return;
    require_bytes(options, model_directory, model.vocab);
    if (options.given("eos_token") && options.text("eos_token") != "none")
      throw options.refuse("eos_token", "--eos_token is a token of a tokenizer, and the tokens are bytes",
                           "Leave it out, or give a --tokenizer that has it");
  });
  return tokenizer;
}

/// The files, where text is replaced by a token file if there is a tokenizer.
TokenizedData prepare_files(const Options& options, World& world, const std::vector<std::string>& named,
                            const std::string& model_directory, RunData& data) {
  TokenizedData made = prepared_tokens(options, world, data.tokenizer.get(), named, model_directory);
  if (!made.line.empty()) data.tokenized.push_back(made.line);
  return made;
}

struct OpenedFiles {
  std::shared_ptr<const io::TokenStream> tokens;
  std::optional<SampleDocuments> documents;  // if samples hold complete ones
};

/// The id that ends documents in .bin files that have no index of documents.
std::int32_t separator(const Options& options, const std::string& model_directory) {
  const std::string to_do = "Give --eos_token TOKEN with a tokenizer, or files that tessera tokenize has written";
  if (options.text("eos_token") == "none")
    throw options.refuse("eos_token", "--packing needs to know where the documents of a .bin file end", to_do);
  if (const auto tokenizer = read_tokenizer(options, model_directory)) return document_end(options, *tokenizer).value();
  if (options.given("eos_token"))
    throw options.refuse("eos_token", "--eos_token needs a tokenizer to look the token up", to_do);
  const io::DocumentIds ids =
      model_directory.empty()
          ? io::DocumentIds{}
          : io::read_document_ids(model_directory, [](std::string_view) { return std::optional<std::int32_t>(); });
  if (ids.eos.empty())
    throw Error(ExitCode::usage,
                "--packing needs to know where the documents of a .bin file end, and the model's directory names no "
                "eos_token_id",
                "--packing", to_do);
  return ids.eos.front();
}

struct NamedFiles {
  std::vector<std::string> named;  // by the user
  TokenizedData prepared;
  std::string model_directory;
};

/// Throws for token files whose text --strict would have refused.
void refuse_repaired(const io::Dataset& data, const std::string& path) {
  std::string of;
  if (data.repairs.invalid > 0) of = strfmt("text with %ld byte sequences that are not UTF-8", data.repairs.invalid);
  else if (data.repairs.replaced > 0)
    of = strfmt("rows with %ld lone surrogates, NaN or Infinity", data.repairs.replaced);
  else if (const io::SkippedRows& rows = data.rows.skipped; rows.count > 0)
    of = strfmt("rows of which %ld cannot be used and were skipped", rows.count);
  else if (!rows.unread.counts.empty())
    of = "rows with keys that are not read, \"" + rows.unread.counts.begin()->first + "\" among them";
  if (!of.empty())
    throw Error(ExitCode::data, "it was made of " + of, path,
                "Correct the text and tokenize it again, or give --strict false");
}

/// Throws unless the files hold pairs, where the run learns from them, and no pairs where it does not.
void require_pairs(const Options& options, const io::Dataset& data, const std::string& path) {
  const auto files = static_cast<std::int64_t>(data.files.size());
  if (learns_preferences(options) && data.rows.files_of_pairs != files)
    throw Error(ExitCode::data, path + " does not hold pairs of a chosen and a rejected answer", "--stage rlhf",
                "Give rows of pairs (docs/preferences.md), which tessera rlhf tokenizes");
  if (learns_preferences(options) && data.rows.files_of_margins != (learns_rewards(options) ? files : 0))
    throw Error(ExitCode::data,
                path + (learns_rewards(options) ? " was made for another --rlhf_type" : " was made for --rlhf_type rm"),
                "--rlhf_type", "Give the rows of pairs that it was made of");
  if (learns_labels(options) && data.rows.files_of_labels != files)
    throw Error(ExitCode::data, path + " was made for another --rlhf_type", "--rlhf_type",
                "Give the rows that it was made of");
  if (learns_preferences(options) && !learns_labels(options) && data.rows.labelled > 0)
    throw Error(ExitCode::data, path + " holds answers with labels, and no pairs", "--rlhf_type",
                "Train on it with tessera kto");
  if (!learns_preferences(options) && data.rows.files_of_pairs > 0)
    throw Error(ExitCode::data, path + " holds pairs of a chosen and a rejected answer", "--dataset",
                "Train on it with tessera rlhf");
}

/// Opens the files. `files` receives those that the option names, for the log.
io::Dataset open_checked(const Options& options, const NamedFiles& of, const models::Model& model,
                         std::vector<io::DatasetFile>& files) {
  const auto& [names, prepared, model_directory] = of;
  io::SkippedRows skipped;
  io::Dataset data = io::open_dataset(prepared.files, options.flag("strict") ? nullptr : &skipped,
                                      {model.vocab, row_settings(options, model_directory).images});
  report_skipped(skipped);
  if (options.flag("strict")) refuse_repaired(data, prepared.files.front().path);
  warn_of_encoding(data.repairs);
  report_skipped(data.rows.skipped);
  warn_of_left_out(data.rows);
  require_pairs(options, data, names.front());
  files = data.files;
  const std::vector<io::DataFile> named = io::data_files(names);
  if (!std::ranges::equal(named, prepared.files, {}, &io::DataFile::path, &io::DataFile::path)) {
    files.clear();
    for (const io::DataFile& file : named) files.push_back({.path = file.path, .kind = io::data_kind(file.path)});
  }
  return data;
}

/// How streams become samples: of complete documents (with --packing, or of conversations), or of T tokens each. What
/// becomes of a document that is too long depends on the set that it is in, not on the others.
class Samples {
 public:
  Samples(const Options& options, std::int64_t tokens, bool conversations, RunData& data)
      : options_(options), tokens_(tokens), data_(data), documents_(conversations || options.flag("packing")) {
    if (!conversations) refuse_chat_options(options);
    if (!documents_ && truncation_word(options, conversations) != "split")
      throw options.refuse("truncation_strategy",
                           "texts are read as one stream of tokens, in which no document is too long",
                           "Add --packing true, or leave --truncation_strategy out");
  }
  [[nodiscard]] bool documents() const { return documents_; }
  /// `named`: the files, if they are token files that the user has named; some of their samples or documents may be
  /// selected.
  [[nodiscard]] OpenedFiles opened(io::Dataset data, const NamedFiles& named,
                                   const std::string& model_directory) const {
    const auto all = std::make_shared<io::Dataset>(std::move(data));
    OpenedFiles files{{all, all->tokens.get()}, {}};
    if (documents_)
      files.documents.emplace(
          all, io::needs_separator(*all) ? std::optional(separator(options_, model_directory)) : std::nullopt);
    const std::vector<io::DataFile> selected = io::data_files(named.named);
    if (all->files.front().kind != "bin" || named.prepared.files.size() != selected.size() ||
        !std::ranges::equal(named.prepared.files, selected, {}, &io::DataFile::path, &io::DataFile::path) ||
        std::ranges::none_of(selected, &io::DataFile::selects))
      return files;
    if (learns_preferences(options_))
      throw Error(ExitCode::usage, "FILE#N and FILE:SHARE of token files would part pairs", "--dataset",
                  "Name the files without, or select rows of the text");
    if (options_.real("split_dataset_ratio") > 0 || options_.text("baseline") == "bigram")
      throw options_.refuse(options_.real("split_dataset_ratio") > 0 ? "split_dataset_ratio" : "baseline",
                            "it does not go with FILE#N or FILE:SHARE of token files",
                            "Name the files without, or validation data by --val_dataset");
    if (files.documents) {
      files.documents->select(selected, data_seed(options_));
      return files;
    }
    std::vector<std::int64_t> tokens_of;
    for (const io::DatasetFile& file : all->files) tokens_of.push_back(file.tokens);
    files.tokens =
        std::make_shared<io::SelectedStream>(files.tokens, selected, tokens_of, tokens_, data_seed(options_));
    return files;
  }
  /// Collective. Packs documents into samples; the run's data keep the stream.
  [[nodiscard]] std::shared_ptr<const io::TokenStream> pack(World& world, OpenedFiles& files, DocumentPart part,
                                                            std::int64_t position = 0) {
    const std::int64_t group =
        kl_group(options_,
                 options_.commands == for_eval ? eval_rows_of(options_) : batch_of(options_, world.size()).micro_batch);
    const io::Truncation truncation = io::truncation_of(truncation_word(options_, files.tokens->masked()));
    const io::PackingRule rule{tokens_, io::packing_of(packing_word(options_)), truncation, group};
    return data_.packed.emplace_back(
        packed_samples(options_, world, files.tokens, files.documents.value(), part, position, rule));
  }
  /// Collective.
  [[nodiscard]] std::shared_ptr<const io::TokenStream> all(World& world, OpenedFiles& files) {
    return documents_ ? pack(world, files, DocumentPart::all) : files.tokens;
  }

 private:
  const Options& options_;
  std::int64_t tokens_;
  RunData& data_;
  bool documents_;
};

/// Collective: reads the tokens from `first` on, each rank a share, and throws on every rank at an id beyond the
/// vocabulary. Of validation data at start: at the last evaluation such an id would cost the trained model.
void check_ids(World& world, const io::TokenStream& stream, std::int64_t first) {
  const std::int64_t count = stream.size() - first;
  const auto share_begin = [&](int rank) { return first + count * rank / world.size(); };
  world.run_and_agree([&] {
    std::vector<std::int32_t> ids(std::size_t{1} << 16);
    const std::int64_t end = share_begin(world.rank() + 1);
    for (std::int64_t at = share_begin(world.rank()); at < end; at += std::ssize(ids))
      stream.read(at, std::min<std::int64_t>(std::ssize(ids), end - at), ids.data());
  });
}

/// Collective. Holds out the last --split_dataset_ratio of the tokens for validation; of documents the last complete
/// ones.
void split(const Options& options, World& world, OpenedFiles& files, Samples& samples, RunData& data) {
  const std::int64_t size = files.tokens->size();
  const auto held_out =
      static_cast<std::int64_t>(std::floor(options.real("split_dataset_ratio") * static_cast<double>(size)));
  check_ids(world, *files.tokens, size - held_out);
  ValidationSet& validation = data.validation.emplace_back();
  if (!samples.documents()) {
    validation.tokens = io::slice(files.tokens, size - held_out, held_out);
    data.train = io::slice(files.tokens, 0, size - held_out);
    return;
  }
  data.train = samples.pack(world, files, DocumentPart::before, size - held_out);
  validation.tokens = samples.pack(world, files, DocumentPart::behind, size - held_out);
}

/// The values of --val_dataset, prepared: each is a data set of its own.
std::vector<NamedFiles> validation_files(const Options& options, World& world, const std::string& model_directory,
                                         RunData& data) {
  std::vector<NamedFiles> sets;
  for (const std::string& file : options.list("val_dataset"))
    sets.push_back({{file}, prepare_files(options, world, {file}, model_directory, data), model_directory});
  return sets;
}

std::string set_name(const std::string& file, const std::vector<ValidationSet>& others) {
  const std::string stem =
      io::is_command(file) ? "command" : std::filesystem::path(io::without_selection(file)).stem().string();
  std::string name = stem;
  const auto is_taken = [&](const ValidationSet& set) { return set.name == name; };
  for (int i = 2; std::ranges::any_of(others, is_taken); ++i) name = stem + "_" + std::to_string(i);
  return name;
}

}  // namespace

std::int64_t RunData::row_tokens(std::int64_t tokens, int ranks) const {
  std::int64_t longest = 0;
  for (const auto& stream : packed) {
    if (!stream->has_rows()) return tokens;
    longest = std::max(longest, stream->count().longest);
  }
  return longest > 0 ? exec::padded_tokens(longest, tokens, ranks) : tokens;
}

void RunData::set_flat_tokens(plan::RunSpec& spec) const {
  using Sequences = io::PackedStream::Sequences;
  const auto most = [&](const io::TokenStream& stream, std::int64_t samples, Sequences of) {
    const std::int64_t limit = samples * (of.end - of.first) * spec.tokens;
    return std::max(spec.tokens, exec::padded_tokens(stream.packed()->longest_together(samples, of), limit,
                                                     spec.model->tensor_ranks));
  };
  const Sequences all{0, spec.sequences};
  const auto evaluated = [&](const io::TokenStream& stream) {
    const std::int64_t tokens = most(stream, spec.eval_rows(), all);
    return spec.needs_kl ? std::max(tokens, most(stream, spec.eval_rows(), {1, 2})) : tokens;
  };
  spec.flat_tokens = spec.flat_eval_tokens = 0;
  if (train->packed() == nullptr)
    return log::info("data      --padding_free: texts are one stream, of which nothing is padded");
  const bool trains = spec.purpose == plan::Purpose::train;
  spec.flat_tokens = most(*train, spec.batch.micro_batch, all);
  spec.flat_eval_tokens = trains && !spec.needs_kl ? spec.tokens : evaluated(*train);
  for (const ValidationSet& set : validation)
    spec.flat_eval_tokens = std::max(spec.flat_eval_tokens, evaluated(*set.tokens));
}

bool RunData::weighted() const {
  return train->weighted() ||
         std::ranges::any_of(validation, [](const ValidationSet& set) { return set.tokens->weighted(); });
}

void require_dataset(const Options& options) {
  if (options.has("dataset")) return;
  const bool evaluates = (options.commands & for_inference) != 0;
  throw Error(ExitCode::usage, evaluates ? "no data to evaluate on is given" : "no training data is given", "--dataset",
              "Give --dataset FILE ...");
}

RunData open_data(const Options& options, World& world, const models::Model& model, std::int64_t tokens,
                  const std::string& model_directory) {
  require_dataset(options);
  world.run_and_agree([&] {
    refuse_hub_names(options);
    refuse_row_options(options);
  });
  RunData data;
  if (reads_text(options)) data.tokenizer = tokenizer_of(options, world, model, model_directory);
  const std::vector<std::string>& named = options.list("dataset");
  const NamedFiles training{named, prepare_files(options, world, named, model_directory, data), model_directory};
  const std::vector<NamedFiles> validation = validation_files(options, world, model_directory, data);
  OpenedFiles train;
  std::vector<OpenedFiles> sets;
  std::optional<Samples> samples;
  world.run_and_agree([&] {
    io::Dataset opened = open_checked(options, training, model, data.train_files);
    bool conversations = opened.tokens->masked();
    std::vector<io::Dataset> others;
    for (const NamedFiles& files : validation) {
      ValidationSet set{.name = set_name(files.named.front(), data.validation)};
      others.push_back(open_checked(options, files, model, set.files));
      conversations = conversations || others.back().tokens->masked();
      data.validation.push_back(std::move(set));
    }
    if (conversations && !opened.tokens->masked() && !options.flag("packing"))
      throw options.refuse("val_dataset",
                           "it has conversations and --dataset has none: texts are one stream of tokens, and "
                           "conversations are not",
                           "Add --packing true, or validate on texts");
    samples.emplace(options, tokens, conversations, data);
    for (std::size_t i = 0; i < others.size(); ++i)
      sets.push_back(samples->opened(std::move(others[i]), validation[i], model_directory));
    train = samples->opened(std::move(opened), training, model_directory);
  });
  for (std::size_t i = 0; i < sets.size(); ++i) {
    check_ids(world, *sets[i].tokens, 0);
    data.validation[i].tokens = samples->all(world, sets[i]);
  }
  if (options.real("split_dataset_ratio") > 0) split(options, world, train, *samples, data);
  else data.train = samples->all(world, train);
  world.run_and_agree([&] {
    data.train_count = require_samples(*data.train, tokens, "training data", "--dataset");
    for (ValidationSet& set : data.validation)
      set.count = require_samples(*set.tokens, tokens, "validation data",
                                  set.files.empty() ? "--split_dataset_ratio" : "--val_dataset");
  });
  return data;
}

RunData open_eval_data(const Options& options, World& world, const models::Model& model, std::int64_t tokens,
                       const std::string& model_directory) {
  require_dataset(options);
  world.run_and_agree([&] {
    refuse_hub_names(options);
    refuse_row_options(options);
  });
  RunData data;
  if (reads_text(options)) data.tokenizer = tokenizer_of(options, world, model, model_directory);
  const std::vector<std::string>& named = options.list("dataset");
  const NamedFiles files{named, prepare_files(options, world, named, model_directory, data), model_directory};
  OpenedFiles opened;
  std::optional<Samples> samples;
  world.run_and_agree([&] {
    io::Dataset all = open_checked(options, files, model, data.train_files);
    samples.emplace(options, tokens, all.tokens->masked(), data);
    opened = samples->opened(std::move(all), files, model_directory);
  });
  data.train = samples->all(world, opened);
  world.run_and_agree([&] { data.train_count = require_samples(*data.train, tokens, "data", "--dataset"); });
  return data;
}

}  // namespace tessera::jobs
