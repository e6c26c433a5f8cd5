// SPDX-License-Identifier: Apache-2.0
// What a training run shows of its model: evaluations, the best checkpoint, samples.
#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "io/checkpoint/checkpoint.hpp"
#include "io/corpus/chat_turn.hpp"
#include "jobs/cli/commands/train.hpp"
#include "jobs/cli/session/data_source.hpp"
#include "jobs/cli/session/preferences.hpp"
#include "jobs/cli/session/progress.hpp"
#include "jobs/cli/session/tokenized_data.hpp"
#include "runtime/base/log.hpp"

namespace tessera::jobs {

namespace {

using Json = nlohmann::ordered_json;

/// An evaluation's figures, "eval_loss" and so on.
Json eval_figures(const std::string& prefix, const infer::EvalReport& report, Figures of) {
  if (of != Figures::tokens) {
    Json figures = {{prefix + "loss", json_number(report.loss)}};
    for (const auto& [name, value] : preference_figures(report.preference(), of))
      figures[prefix + name] = json_number(value);
    figures[prefix + unit_of(of)] = report.tokens;
    return figures;
  }
  return {{prefix + "loss", json_number(report.loss)},
          {prefix + "ppl", json_number(std::exp(report.loss))},
          {prefix + "token_acc", report.token_accuracy},
          {prefix + "tokens", report.tokens}};
}

}  // namespace

Figures TrainRun::figures_of_run() const {
  if (learns_labels(options_)) return Figures::answers;
  if (model_.score >= 0) return Figures::rewards;
  return model_.num_metrics > 0 ? Figures::pairs : Figures::tokens;
}

namespace {
/// An evaluation of the data, as far as it says which labels they have.
infer::EvalReport report_of_labels(const io::TokenStream& tokens) {
  infer::EvalReport report;
  if (tokens.packed() == nullptr || tokens.packed()->packing() != io::Packing::unpaired) return report;
  report.sums.tokens = tokens.packed()->count().samples;
  for (std::int64_t k = 0; k < report.sums.tokens; ++k) {
    const bool chosen = tokens.packed()->is_chosen(k);
    ++report.preference_sums[static_cast<std::size_t>(chosen ? kernels::PreferenceSum::chosen_rows
                                                             : kernels::PreferenceSum::rejected_rows)];
  }
  return report;
}
}  // namespace

void TrainRun::require_metric() const {
  if (!best_metric_) return;
  infer::EvalReport all;
  Json of_sets = Json::object();
  for (const ValidationSet& set : data_.validation) {
    infer::EvalReport one;
    one.add(report_of_labels(*set.tokens));
    all.add(one);
    if (data_.validation.size() > 1) of_sets.update(eval_figures("eval_" + set.name + "_", one, figures_of_run()));
  }
  Json figures = eval_figures("eval_", all, figures_of_run());
  figures.update(of_sets);
  if (figures.contains(best_metric_->name)) return;
  std::string list;
  for (const auto& [name, value] : figures.items()) list += (list.empty() ? "" : ", ") + name.substr(5);
  throw options_.refuse("metric_for_best_model", "an evaluation has no figure " + best_metric_->name,
                        "Choose one of " + list);
}

bool TrainRun::evaluates_after(std::int64_t done) const {
  const std::string strategy = options_.text("eval_strategy");
  if (data_.validation.empty() || strategy == "no") return false;
  if (done == length_.total_steps) return true;
  const std::int64_t every = options_.steps("eval_steps", length_.total_steps);
  return strategy == "epoch" ? progress_.samples % length_.samples == 0 : every > 0 && done % every == 0;
}

infer::EvalReport TrainRun::evaluate(const ValidationSet& set) {
  const plan::RunSpec& spec = trainer_->plan().spec;
  const std::int64_t rows = spec.eval_batch > 0 ? spec.eval_batch : spec.batch.micro_batch;
  const std::int64_t most = options_.integer("eval_max_batches") * rows * spec.batch.data_ranks;
  infer::EvalReport report;
  checkpoint_manager_->begin_passes();
  try {
    report = trainer_->evaluate(*set.tokens, most, evaluation_progress());
  } catch (const Error& error) {
    if (error.code() == ExitCode::diverged) throw;
    output_->fail();
    world_.abort(error);
  }
  checkpoint_manager_->end_passes();
  return report;
}

infer::EvalReport TrainRun::evaluate(std::int64_t done) {
  const std::int64_t total = length_.total_steps;
  const bool several = data_.validation.size() > 1;
  infer::EvalReport report;
  Json of_sets = Json::object();
  for (const ValidationSet& set : data_.validation) {
    const infer::EvalReport one = evaluate(set);
    report.add(one);
    if (one.flags.stop > 0 && &set != &data_.validation.back()) report.complete = false;
    if (!report.complete) {
      log::info(strfmt("eval %ld/%ld | stopped after %ld %s: it is not recorded", done, total, report.tokens,
                       unit_of(figures_of_run())));
      return report;
    }
    if (!several) continue;
    log::info(eval_line(done, total, one, set.name, figures_of_run()));
    of_sets.update(eval_figures("eval_" + set.name + "_", one, figures_of_run()));
  }
  log::info(eval_line(done, total, report, "", figures_of_run()));
  Json json = eval_figures("eval_", report, figures_of_run());
  json.update(of_sets);
  json.update({{"global_step", done}, {"max_steps", total}, {"eval_runtime", report.seconds}});
  world_.run_and_agree([&] { output_->log(json); });
  // A figure that JSON has no number for is a word in the record.
  if (best_metric_) {
    const auto value = json.find(best_metric_->name);
    checkpoint_manager_->evaluated(done, value != json.end() && value->is_number() ? value->get<double>() : NAN);
  }
  return report;
}

void TrainRun::warn_of_loss() const {
  const double log_vocabulary =
      data_.weighted() || figures_of_run() != Figures::tokens ? 0 : std::log(static_cast<double>(model_.vocab));
  const std::string why = loss_trend_.not_fallen({log_vocabulary, first_step_ > 0});
  if (!why.empty()) log::warn(62, why);
}

/// The weights of the best checkpoint, for what follows the last step.
void TrainRun::load_best() {
  const std::optional<BestCheckpoint>& best = checkpoint_manager_->best();
  if (!best) {
    log::warn(33,
              "--load_best_model_at_end: no checkpoint of this run has been evaluated: the last step's weights stay");
    return;
  }
  const std::string figure = strfmt(" | %s %.4f of step %ld", best->metric.name.c_str(), best->value, best->step);
  if (best->step == progress_.step) return log::info("best      the last step" + figure);
  const io::CheckpointReader reader(world_, best->path);
  io::TrainingState state = trainer_->state();
  state.states.clear();
  const io::LoadReport report = reader.load(model_.own_params(), trainer_->plan().layout, state);
  trainer_->parameters_changed();
  log::info("best      " + best->path + figure + " | " + human_bytes(report.bytes) +
            strfmt(" read in %.1f s", report.seconds));
}

/// A model that is trained on conversations stops where an answer ends, and its samples are answers.
void TrainRun::read_chat() {
  if (data_.tokenizer == nullptr || data_.tokenized.empty() || !data_.train->masked() || model_.score >= 0) return;
  if (learns_preferences(options_) && !has_chat_template(options_, config_.directory)) return;  // its pairs are texts
  world_.run_and_agree([&] {
    chat_ = chat_template(options_, config_.directory);
    system_ = system_text(options_);
    end_of_turn_ = io::end_of_turn(*chat_, *data_.tokenizer);
    const std::vector<std::int32_t>& known = data_.tokenizer->eos_ids();
    if (end_of_turn_ && std::ranges::find(known, *end_of_turn_) == known.end())
      changed_files_.push_back(io::generation_config(config_.directory, known, *end_of_turn_));
  });
}

std::vector<std::int32_t> TrainRun::ids_of(const Prompt& prompt) const {
  if (chat_) return data_.tokenizer->encode(prompt.rendered(*chat_, system_).text, io::Special::without);
  if (data_.tokenizer != nullptr && !prompt.text.empty())
    return data_.tokenizer->encode(prompt.text, io::Special::with);
  std::vector<std::int32_t> ids;
  for (const char c : prompt.text) ids.push_back(static_cast<unsigned char>(c));
  return ids;
}

void TrainRun::read_sample_prompts() {
  if (options_.has("sample_prompt")) prompts_.push_back({.text = options_.text("sample_prompt")});
  for (const Prompt& prompt : prompts_) check_prompt("sample_prompt", prompt);
  if (!options_.has("prompt_file")) return;
  std::vector<Prompt> named = read_prompts(options_, world_, chat_ ? PromptForm::chat : PromptForm::text);
  warn_of_unread_keys(named, chat_ ? &*chat_ : nullptr, system_);
  for (Prompt& prompt : named) {
    check_prompt("prompt_file", prompt);
    prompts_.push_back(std::move(prompt));
  }
}

void TrainRun::check_prompt(const char* option, const Prompt& prompt) const {
  const std::vector<std::int32_t> ids = ids_of(prompt);
  if (const auto image = image_token_of(ids, image_tokens(config_.directory)))
    throw options_.refuse(option, strfmt("a prompt has token %d, which stands for an image", *image),
                          "Only the model's text is read: leave images out");
  for (const std::int32_t id : ids)
    if (id >= model_.vocab)
      throw options_.refuse(option, strfmt("a prompt has token id %d, beyond the model's vocabulary", id),
                            "Choose another prompt");
}

/// Nothing: a stop flag has ended it.
std::optional<std::string> TrainRun::continued(const Prompt& prompt) {
  const std::vector<std::int32_t> ids = ids_of(prompt);
  std::optional<std::vector<std::int32_t>> made =
      trainer_->generate(ids, static_cast<int>(options_.integer("sample_tokens")), options_.real("sample_temperature"),
                         trainer_options_.seed);
  if (!made) return std::nullopt;
  std::vector<std::int32_t>& out = *made;
  if (data_.tokenizer == nullptr) return printable(out);
  for (const std::optional<std::int32_t> end : {sample_end_, end_of_turn_})
    if (end)
      out.erase(std::find(out.begin() + static_cast<std::ptrdiff_t>(std::min(ids.size(), out.size())), out.end(), *end),
                out.end());
  return printable_text(data_.tokenizer->decode(out, io::Special::with));
}

/// Continues --sample_prompt (at the end only) and the prompts of --prompt_file.
bool TrainRun::sample(std::int64_t done) {
  const bool last = done == length_.total_steps;
  Json samples = Json::array();
  checkpoint_manager_->begin_passes();
  for (std::size_t i = options_.has("sample_prompt") && !last ? 1 : 0; i < prompts_.size(); ++i) {
    const std::optional<std::string> text = continued(prompts_[i]);
    if (!text) {
      log::info(strfmt("samples %ld/%ld | stopped: they are not recorded", done, length_.total_steps));
      return false;
    }
    log::info("sample    " + *text);
    samples.push_back({{"prompt", prompts_[i].text}, {"text", *text}});
  }
  checkpoint_manager_->end_passes();
  if (samples.empty()) return true;
  const Json record = {{"samples", samples}, {"global_step", done}};
  if (options_.has("prompt_file")) world_.run_and_agree([&] { output_->log(record); });
  else if (output_->tensorboard() != nullptr) output_->tensorboard()->record(record);
  return true;
}

}  // namespace tessera::jobs
