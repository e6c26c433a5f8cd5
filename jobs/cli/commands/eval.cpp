// `tessera eval`: loss, perplexity and token accuracy of a model on a dataset.
#include <chrono>
#include <cmath>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "jobs/cli/session/inference.hpp"
#include "jobs/cli/session/log_lines.hpp"
#include "jobs/cli/session/progress.hpp"
#include "jobs/cli/session/resources.hpp"
#include "runtime/base/log.hpp"

namespace tessera::jobs {

namespace {

constexpr std::int64_t default_length = 2048;

double tokens_per_second(const train::EvalReport& report) {
  return static_cast<double>(report.tokens) / std::max(report.seconds, 1e-12);
}

}  // namespace

void eval_command(const Call& call, World& world) {
  const Options& options = call.options();
  const bool json = options.flag("json");
  check_options(options);
  const ModelConfig config = read_model_config(options, &world);
  const models::Model model = make_evaluated_model(options, config);
  const ThreadAllocation threads = set_rank_threads(options, world);
  plan::RunSpec spec = inference_spec(options, model, world.size(), world.topology(), plan::Purpose::evaluate,
                                      std::numeric_limits<std::int64_t>::max());
  spec.tokens =
      options.has("max_length") ? sequence_length(options, model) : std::min(model.max_tokens, default_length);
  const RunData data = open_eval_data(options, world, model, spec.tokens, config.directory);
  spec.tokens = data.row_tokens(spec.tokens);
  spec.packed = data.train->packed() != nullptr;
  spec.loss_weights = data.weighted();
  if (options.flag("padding_free")) data.set_flat_tokens(spec);
  if (!json)
    for (const std::string& tokens : data.tokenized) log::info("tokens    " + tokens);
  const auto run = load_inference(options, world, config, model, spec);
  if (!json)
    announce_inference(call, world, config, *run, threads,
                       data_line("data", data.train_files, *data.train, data.train_count, spec.tokens));

  const std::int64_t most = options.integer("eval_max_batches") * spec.batch.global_batch,
                     all = data.train_count.samples;
  const train::EvalReport report =
      json ? run->evaluate(*data.train, most) : run->evaluate(*data.train, most, evaluation_progress());
  if (json) {
    const nlohmann::ordered_json object = {{"loss", report.loss},
                                           {"perplexity", std::exp(report.loss)},
                                           {"token_accuracy", report.token_accuracy},
                                           {"tokens", report.tokens},
                                           {"samples", most > 0 ? std::min(most, all) : all},
                                           {"max_length", spec.tokens},
                                           {"seconds", report.seconds},
                                           {"tokens_per_second", tokens_per_second(report)}};
    if (world.rank() == 0) std::puts(object.dump().c_str());
  } else {
    log::info(strfmt("eval | loss %.6f | ppl %.4f | token_acc %.4f | %s tokens | tok/s %s", report.loss,
                     std::exp(report.loss), report.token_accuracy, human_count(report.tokens).c_str(),
                     human_count(tokens_per_second(report)).c_str()));
  }
}

}  // namespace tessera::jobs
