// SPDX-License-Identifier: Apache-2.0
// `tessera eval`: loss, perplexity and token accuracy of a model on a dataset.
#include <chrono>
#include <cmath>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "jobs/cli/session/default_precision.hpp"
#include "jobs/cli/session/inference.hpp"
#include "jobs/cli/session/log_lines.hpp"
#include "jobs/cli/session/preferences.hpp"
#include "jobs/cli/session/progress.hpp"
#include "jobs/cli/session/resources.hpp"
#include "jobs/cli/session/reward_model.hpp"
#include "jobs/cli/session/run_directory.hpp"
#include "jobs/cli/session/setup_errors.hpp"
#include "jobs/cli/session/strategy.hpp"
#include "jobs/cli/session/weights.hpp"
#include "models/score_head.hpp"
#include "models/tensor_split.hpp"
#include "runtime/base/log.hpp"

namespace tessera::jobs {

namespace {

constexpr std::int64_t default_length = 2048;

/// Tokens, pairs or answers.
double per_second(const infer::EvalReport& report) {
  return static_cast<double>(report.tokens) / std::max(report.seconds, 1e-12);
}

nlohmann::ordered_json eval_object(const infer::EvalReport& report, Figures of) {
  nlohmann::ordered_json object = {{"loss", json_number(report.loss)}};
  if (of == Figures::tokens)
    object.update(
        {{"perplexity", json_number(std::exp(report.loss))}, {"token_accuracy", json_number(report.token_accuracy)}});
  else
    for (const auto& [name, value] : preference_figures(report.preference(), of)) object[name] = json_number(value);
  object[unit_of(of)] = report.tokens;
  return object;
}

std::string eval_text(const infer::EvalReport& report, Figures of) {
  if (of == Figures::tokens)
    return strfmt("eval | loss %.6f | ppl %.4f | token_acc %.4f | %s tokens | tok/s %s", report.loss,
                  std::exp(report.loss), report.token_accuracy, human_count(report.tokens).c_str(),
                  human_count(per_second(report)).c_str());
  std::string text = strfmt("eval | loss %.6f", report.loss);
  for (const auto& [name, value] : preference_figures(report.preference(), of))
    text += strfmt(" | %s %.6f", name.c_str(), value);
  return text + strfmt(" | %ld %s | %s/s %.3g", report.tokens, unit_of(of), unit_of(of), per_second(report));
}

struct EvalSetup {
  ModelConfig config;
  models::Model model;
  ThreadAllocation threads;
  plan::RunSpec spec;  // points to `model`
  RunData data;
};

/// The loss of pairs or of labelled answers, and its reference model.
void set_preference_loss(const Options& options, EvalSetup& setup) {
  models::Model& model = setup.model;
  if (learns_rewards(options) && model.score < 0)
    throw Error(ExitCode::usage, setup.config.path + " is of a language model: it has no score head", "--rlhf_type rm",
                "Give a reward model, or the adapter of one");
  if (!learns_rewards(options))
    refuse_reward_model(model, "--rlhf_type " + options.text("rlhf_type"), setup.config.path);
  if (reference_source(options, model) == ReferenceSource::own && !options.has("ref_model"))
    throw Error(
        ExitCode::usage,
        "the model would be compared with itself: --rlhf_type " + options.text("rlhf_type") + " needs its reference",
        "--ref_model", "Give the model that it was trained from, or its adapters with --adapters");
  add_preferences(model, options, setup.config.text, setup.config.path);
}

/// Decides the precision in `options`.
void prepare(Options& options, World& world, EvalSetup& setup) {
  check_options(options);
  setup.config = read_model_config(options, &world);
  if (models::has_score(setup.config.text) && !options.given("rlhf_type")) {  // its data are pairs
    options.decide("stage", "rlhf", "the model is a reward model");
    options.decide("rlhf_type", "rm", "the model is a reward model");
  }
  decide_precision(options, setup.config, world);
  setup.model = make_evaluated_model(options, setup.config);
  if (learns_preferences(options)) set_preference_loss(options, setup);
  models::split_tensors(setup.model, tensor_ranks_of(options));
  require_weights(world, setup.config.directory);
  setup.threads = set_rank_threads(options, world);
  plan::RunSpec& spec = setup.spec;
  spec = inference_spec(options, setup.model, world.size(), world.topology(), plan::Purpose::evaluate,
                        std::numeric_limits<std::int64_t>::max());
  set_preferences(spec, options);
  spec.tokens = options.has("max_length") ? sequence_length(options, setup.model)
                                          : std::min(setup.model.max_tokens, default_length);
  setup.data = open_eval_data(options, world, setup.model, spec.tokens, setup.config.directory);
  spec.tokens = setup.data.row_tokens(spec.tokens, setup.model.tensor_ranks);
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
  const Figures figures = learns_labels(options)  ? Figures::answers
                          : model.score >= 0      ? Figures::rewards
                          : model.num_metrics > 0 ? Figures::pairs
                                                  : Figures::tokens;
  const infer::EvalReport report =
      json ? run->evaluate(*data.train, most) : run->evaluate(*data.train, most, evaluation_progress());
  if (json) {
    nlohmann::ordered_json object = eval_object(report, figures);
    object.update({{"samples", most > 0 ? std::min(most, all) : all},
                   {"max_length", spec.tokens},
                   {"compute_dtype", name_of(model.dtype)},
                   {"seconds", report.seconds},
                   {std::string(unit_of(figures)) + "_per_second", per_second(report)}});
    if (world.rank() == 0) std::puts(object.dump().c_str());
  } else {
    log::info(eval_text(report, figures));
  }
  // The same on every rank.
  if (!std::isfinite(report.loss))
    throw Error(ExitCode::diverged, strfmt("the loss is %f", report.loss), config.path,
                "tessera inspect --stats names tensors with values that are not numbers; a model in fp16 may overflow: "
                "use --mixed_precision bf16");
}

}  // namespace tessera::jobs
