// Opening a run's data: files, split, counts, and whether the model can read the ids.
#include <algorithm>
#include <cmath>

#include "io/data_kind.hpp"
#include "jobs/run/setup.hpp"
#include "jobs/run/text.hpp"

namespace tessera::jobs {

namespace {

void check_ids(const io::Dataset& data, const models::Model& model, const char* option) {
  if (data.largest_id < model.vocab) return;
  throw Error(ExitCode::data,
              strfmt("the data holds token id %d, but the model's vocabulary ends at %lld", data.largest_id,
                     static_cast<long long>(model.vocab - 1)),
              std::string("--") + option, "Use a model with a larger vocab_size, or data of another tokenizer");
}

io::SampleCount count_or_refuse(const io::TokenStream& tokens, std::int64_t length, const char* what,
                                const char* option) {
  const io::SampleCount count = io::count_samples(tokens.size(), length);
  if (count.samples < 1) {
    throw Error(ExitCode::data,
                strfmt("the %s has %lld tokens; one sample takes max_length + 1 = %lld", what,
                       static_cast<long long>(tokens.size()), static_cast<long long>(length + 1)),
                option, "Give more data, or a smaller --max_length");
  }
  return count;
}

/// True if something has to be tokenised: .bin files are tokens already, and then no tokenizer is looked for.
bool reads_text(const Options& options) {
  const auto is_text = [](const std::string& path) { return io::data_kind(path) != "bin"; };
  for (const char* name : {"dataset", "val_dataset"})
    if (std::any_of(options.list(name).begin(), options.list(name).end(), is_text)) return true;
  return options.has("sample_prompt");
}

/// The files of an option, text as a token file where there is a tokenizer.
std::vector<std::string> prepare_files(const Options& options, World& world, const char* option, RunData& data) {
  const TokenisedData made = tokenised(options, world, data.tokenizer.get(), options.list(option));
  if (!made.line.empty()) data.tokenised.push_back(made.line);
  return made.paths;
}

/// The stream of `paths`; `files` are those of the option, whose tokens they hold.
std::shared_ptr<const io::TokenStream> open_checked(const Options& options, const std::vector<std::string>& paths,
                                                    const models::Model& model, const char* option,
                                                    std::vector<io::DatasetFile>& files) {
  io::Dataset data = io::open_dataset(paths, io::Tokenizer::bytes);
  check_ids(data, model, option);
  files = std::move(data.files);
  const std::vector<std::string>& named = options.list(option);
  if (named != paths) {
    files.clear();
    for (const std::string& path : named) files.push_back({.path = path, .kind = io::data_kind(path)});
  }
  return std::move(data.tokens);
}

}  // namespace

RunData open_data(const Options& options, World& world, const models::Model& model, std::int64_t tokens,
                  const std::string& model_directory) {
  if (!options.has("dataset"))
    throw Error(ExitCode::usage, "no training data is named", "--dataset", "Give --dataset FILE ...");
  RunData data;
  if (reads_text(options)) data.tokenizer = load_tokenizer(options, world, model_directory);
  const std::vector<std::string> train_paths = prepare_files(options, world, "dataset", data);
  const std::vector<std::string> val_paths = prepare_files(options, world, "val_dataset", data);
  world.together([&] {
    std::shared_ptr<const io::TokenStream> whole = open_checked(options, train_paths, model, "dataset", data.train_files);
    const double ratio = options.real("split_dataset_ratio");
    if (!val_paths.empty()) {
      data.validation = open_checked(options, val_paths, model, "val_dataset", data.val_files);
      data.train = whole;
    } else if (ratio > 0) {
      const auto held_out = static_cast<std::int64_t>(std::floor(ratio * static_cast<double>(whole->size())));
      data.validation = io::slice(whole, whole->size() - held_out, held_out);
      data.train = io::slice(whole, 0, whole->size() - held_out);
    } else {
      data.train = whole;
    }
    data.train_count = count_or_refuse(*data.train, tokens, "training data", "--dataset");
    if (data.validation != nullptr) {
      data.val_count = count_or_refuse(*data.validation, tokens, "validation data",
                                       options.has("val_dataset") ? "--val_dataset" : "--split_dataset_ratio");
    }
  });
  return data;
}

RunData open_eval_data(const Options& options, World& world, const models::Model& model, std::int64_t tokens,
                       const std::string& model_directory) {
  if (!options.has("dataset"))
    throw Error(ExitCode::usage, "no data to evaluate on is named", "--dataset", "Give --dataset FILE ...");
  RunData data;
  if (reads_text(options)) data.tokenizer = load_tokenizer(options, world, model_directory);
  const std::vector<std::string> paths = prepare_files(options, world, "dataset", data);
  world.together([&] {
    data.train = open_checked(options, paths, model, "dataset", data.train_files);
    data.train_count = count_or_refuse(*data.train, tokens, "data", "--dataset");
  });
  return data;
}

}  // namespace tessera::jobs
