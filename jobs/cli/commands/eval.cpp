// SPDX-License-Identifier: Apache-2.0
// `tessera eval`: loss, perplexity and token accuracy of a model on a dataset.
#include <chrono>
#include <cmath>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "jobs/cli/session/default_precision.hpp"
#include "jobs/cli/session/inference.hpp"
#include "jobs/cli/session/log_lines.hpp"
#include "jobs/cli/session/progress.hpp"
#include "jobs/cli/session/resources.hpp"
#include "jobs/cli/session/run_directory.hpp"
#include "jobs/cli/session/setup_errors.hpp"
#include "jobs/cli/session/weights.hpp"
#include "runtime/base/log.hpp"

namespace tessera::jobs {

namespace {

constexpr std::int64_t default_length = 2048;

double tokens_per_second(const infer::EvalReport& report) {
  return static_cast<double>(report.tokens) / std::max(report.seconds, 1e-12);
}

struct EvalSetup {
  ModelConfig config;
  models::Model model;
  ThreadAllocation threads;
  plan::RunSpec spec;  // points to `model`
  RunData data;
};

/// Decides the precision in `options`.
void prepare(Options& options, World& world, EvalSetup& setup) {
  check_options(options);
  setup.config = read_model_config(options, &world);
  decide_precision(options, setup.config, world);
  setup.model = make_evaluated_model(options, setup.config);
  require_weights(world, setup.config.directory);
  setup.threads = set_rank_threads(options, world);
  plan::RunSpec& spec = setup.spec;
  spec = inference_spec(options, setup.model, world.size(), world.topology(), plan::Purpose::evaluate,
                        std::numeric_limits<std::int64_t>::max());
  spec.tokens = options.has("max_length") ? sequence_length(options, setup.model)
                                          : std::min(setup.model.max_tokens, default_length);
  setup.data = open_eval_data(options, world, setup.model, spec.tokens, setup.config.directory);
  spec.tokens = setup.data.row_tokens(spec.tokens);
  spec.packed = setup.data.train->packed() != nullptr;
  spec.loss_weights = setup.data.weighted();
  if (options.flag("padding_free")) setup.data.set_flat_tokens(spec);
}

/// prepare; what is wrong independently of its first error is told with it.
void prepare_or_say_all(Options& options, World& world, EvalSetup& setup) {
  try {
    prepare(options, world, setup);
  } catch (const Error& error) {
    throw_with_others(options, world, error,
                      {[&] {
                         if (setup.config.text.empty()) setup.config = read_model_config(options, &world);
                         require_weights(world, setup.config.directory);
                       },
                       [&] { require_dataset(options); }});
  }
}

}  // namespace

void eval_command(const Call& call, World& world) {
  Options options = call.options();
  const bool json = options.flag("json");
  EvalSetup setup;
  prepare_or_say_all(options, world, setup);
  const auto& [config, model, threads, spec, data] = setup;
  if (!json)
    for (const std::string& tokens : data.tokenized) log::info("tokens    " + tokens);
  const auto run = load_inference(options, world, config, model, spec);
  if (!json)
    announce_inference({&call, &options, &world, &config, run.get(), threads,
                        data_line("data", data.train_files, *data.train, data.train_count, spec.tokens)});

  const std::int64_t most = options.integer("eval_max_batches") * spec.batch.global_batch,
                     all = data.train_count.samples;
  const infer::EvalReport report =
      json ? run->evaluate(*data.train, most) : run->evaluate(*data.train, most, evaluation_progress());
  if (json) {
    const nlohmann::ordered_json object = {{"loss", json_number(report.loss)},
                                           {"perplexity", json_number(std::exp(report.loss))},
                                           {"token_accuracy", json_number(report.token_accuracy)},
                                           {"tokens", report.tokens},
                                           {"samples", most > 0 ? std::min(most, all) : all},
                                           {"max_length", spec.tokens},
                                           {"compute_dtype", name_of(model.dtype)},
                                           {"seconds", report.seconds},
                                           {"tokens_per_second", tokens_per_second(report)}};
    if (world.rank() == 0) std::puts(object.dump().c_str());
  } else {
    log::info(strfmt("eval | loss %.6f | ppl %.4f | token_acc %.4f | %s tokens | tok/s %s", report.loss,
                     std::exp(report.loss), report.token_accuracy, human_count(report.tokens).c_str(),
                     human_count(tokens_per_second(report)).c_str()));
  }
  // The same on every rank.
  if (!std::isfinite(report.loss))
    throw Error(ExitCode::diverged, strfmt("the loss is %f", report.loss), config.path,
                "tessera inspect --stats names tensors with values that are not numbers; a model in fp16 may overflow: "
                "use --mixed_precision bf16");
}

}  // namespace tessera::jobs
