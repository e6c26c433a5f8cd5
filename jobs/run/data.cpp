// Opening a run's data: files, split, counts, and whether the model can read the ids.
#include <cmath>

#include "jobs/run/setup.hpp"

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

}  // namespace

RunData open_data(const Options& options, World& world, const models::Model& model, std::int64_t tokens) {
  if (!options.has("dataset"))
    throw Error(ExitCode::usage, "no training data is named", "--dataset", "Give --dataset FILE ...");
  RunData data;
  world.together([&] {
    io::Dataset train = io::open_dataset(options.list("dataset"), io::Tokenizer::bytes);
    check_ids(train, model, "dataset");
    data.train_files = train.files;
    std::shared_ptr<const io::TokenStream> whole = std::move(train.tokens);
    const double ratio = options.real("split_dataset_ratio");
    if (options.has("val_dataset")) {
      io::Dataset validation = io::open_dataset(options.list("val_dataset"), io::Tokenizer::bytes);
      check_ids(validation, model, "val_dataset");
      data.val_files = validation.files;
      data.validation = std::move(validation.tokens);
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

RunData open_eval_data(const Options& options, World& world, const models::Model& model, std::int64_t tokens) {
  if (!options.has("dataset"))
    throw Error(ExitCode::usage, "no data to evaluate on is named", "--dataset", "Give --dataset FILE ...");
  RunData data;
  world.together([&] {
    io::Dataset set = io::open_dataset(options.list("dataset"), io::Tokenizer::bytes);
    check_ids(set, model, "dataset");
    data.train_files = set.files;
    data.train = std::move(set.tokens);
    data.train_count = count_or_refuse(*data.train, tokens, "data", "--dataset");
  });
  return data;
}

}  // namespace tessera::jobs
