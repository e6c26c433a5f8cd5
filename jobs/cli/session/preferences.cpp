// SPDX-License-Identifier: Apache-2.0
// Options to the loss of pairs and its reference model.
#include "jobs/cli/session/preferences.hpp"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "io/file/file.hpp"
#include "io/file/text_file.hpp"
#include "io/model/model_files.hpp"
#include "jobs/cli/options/values.hpp"
#include "jobs/cli/session/lora.hpp"
#include "jobs/cli/session/precision.hpp"
#include "jobs/cli/session/quantization.hpp"
#include "jobs/cli/session/reward_model.hpp"
#include "models/preference_loss.hpp"
#include "models/quantize.hpp"
#include "models/reference.hpp"
#include "models/reward_loss.hpp"
#include "runtime/base/log.hpp"

namespace tessera::jobs {

namespace {

/// config.json of the reference model, and its name for messages: of --ref_model, or those of the model, as given.
std::pair<std::string, std::string> reference_config(const Options& options, const std::string& config_json,
                                                     const std::string& source) {
  if (!options.has("ref_model")) return {config_json, source};
  const std::string directory = options.text("ref_model"), path = directory + "/config.json";
  if (!io::exists(path))
    throw options.refuse("ref_model", "there is no config.json in " + directory,
                         "Give the directory of a model; tessera convert --to hf makes one of a checkpoint");
  return {io::read_text(path), path};
}

models::Model reference_model(const Options& options, const std::string& config_json, const std::string& source,
                              DType dtype) {
  const auto [text, path] = reference_config(options, config_json, source);
  return models::make(text, path, dtype);
}

/// Of a second model.
void quantize_reference(models::Model& reference, const Options& options, const std::string& config_json,
                        const std::string& source) {
  const auto [text, path] = reference_config(options, config_json, source);
  if (const QuantFormat format = quantization_of_reference(options, text, path); format != QuantFormat::none)
    models::quantize(reference, format, text);
}

kernels::PreferenceKind kind_of(const std::string& loss) {
  using kernels::PreferenceKind;
  static constexpr std::pair<std::string_view, PreferenceKind> kinds[] = {
      {"hinge", PreferenceKind::hinge},
      {"ipo", PreferenceKind::ipo},
      {"robust", PreferenceKind::robust},
      {"exo_pair", PreferenceKind::exo_pair},
      {"nca_pair", PreferenceKind::nca_pair},
      {"bco_pair", PreferenceKind::bco_pair},
      {"sppo_hard", PreferenceKind::sppo_hard},
      {"apo_zero", PreferenceKind::apo_zero},
      {"apo_down", PreferenceKind::apo_down},
      {"discopop", PreferenceKind::discopop},
      {"aot", PreferenceKind::aot},
      {"aot_unpaired", PreferenceKind::aot_unpaired},
      {"sft", PreferenceKind::none},
      {"simpo", PreferenceKind::simpo},
      {"orpo", PreferenceKind::orpo},
      {"kto", PreferenceKind::kto},
      {"sigmoid", PreferenceKind::sigmoid},
      {"sigmoid_norm", PreferenceKind::sigmoid},
      {"apo_zero_unpaired", PreferenceKind::apo_zero_unpaired}};
  const auto* const found = std::ranges::find(kinds, loss, &std::pair<std::string_view, PreferenceKind>::first);
  TESSERA_ASSERT(found != std::end(kinds), "loss %s", loss.c_str());
  return found->second;
}

/// As in TRL, alpha_divergence near its limit is reverse_kl.
kernels::Divergence divergence_of(const Options& options) {
  using kernels::Divergence;
  const std::string type = options.text("f_divergence_type");
  if (type == "forward_kl") return Divergence::forward_kl;
  if (type == "js_divergence") return Divergence::js_divergence;
  const bool is_limit = std::abs(options.real("f_alpha_divergence_coef") - 1) < 1e-6;
  return type == "alpha_divergence" && !is_limit ? Divergence::alpha_divergence : Divergence::reverse_kl;
}

}  // namespace

bool learns_preferences(const Options& options) { return options.text("stage") == "rlhf"; }
bool learns_labels(const Options& options) { return learns_preferences(options) && options.text("rlhf_type") == "kto"; }
std::vector<std::string> losses_of(const Options& options) {
  const std::string type = options.text("rlhf_type");
  if (type != "dpo" && type != "cpo" && type != "kto") return {type};
  if (options.has("loss_type")) return options.list("loss_type");
  return {type == "kto" ? "kto" : "sigmoid"};
}

std::string loss_of(const Options& options) {
  std::string text;
  for (const std::string& loss : losses_of(options)) text += (text.empty() ? "" : " ") + loss;
  return text;
}

bool sorts_pairs(const Options& options) {
  return learns_preferences(options) && std::ranges::any_of(losses_of(options), [](const std::string& loss) {
           return loss == "aot" || loss == "aot_unpaired";
         });
}

bool needs_kl(const Options& options) { return learns_labels(options) && loss_of(options) == "kto"; }

std::int64_t kl_group(const Options& options, std::int64_t micro_batch) {
  if (!needs_kl(options)) return 0;
  return options.optional_integer("kl_group_size").value_or(micro_batch);
}

/// One of the losses.
static kernels::PreferenceSpec preference_spec(const Options& options, const std::string& loss) {
  using kernels::PreferenceKind;
  const std::string type = options.text("rlhf_type");
  kernels::PreferenceSpec spec;
  spec.kind = kind_of(loss);
  spec.beta = options.has("beta") ? options.real("beta") : type == "simpo" ? 2.0 : 0.1;
  spec.label_smoothing = options.real("label_smoothing");
  if (spec.kind == PreferenceKind::exo_pair && !options.given("label_smoothing")) spec.label_smoothing = 1e-3;
  spec.discopop_tau = options.real("discopop_tau");
  spec.divergence = divergence_of(options);
  spec.alpha = options.real("f_alpha_divergence_coef");
  spec.desirable_weight = options.real("desirable_weight");
  spec.undesirable_weight = options.real("undesirable_weight");
  if (type == "simpo") spec.gamma = options.has("simpo_gamma") ? options.real("simpo_gamma") : 1.0;
  spec.mean = loss == "ipo" || loss == "simpo" || loss == "orpo" || loss == "sigmoid_norm";
  spec.tail_weight = options.has("ld_alpha") ? options.real("ld_alpha") : 1.0;
  spec.weighted = options.flag("use_weighting");
  spec.rewards_mean = spec.mean && type != "dpo";
  if (loss == "sft") spec.nll = 1;
  else if (type == "dpo") spec.nll = options.has("rpo_alpha") ? options.real("rpo_alpha") : 0.0;
  else if (type == "orpo") spec.nll = 1;
  else if (type == "kto") spec.nll = 0;
  else spec.nll = options.real("cpo_alpha");
  return spec;
}

std::vector<models::PreferenceTerm> preference_terms(const Options& options) {
  std::vector<models::PreferenceTerm> terms;
  const std::vector<std::string> losses = losses_of(options);
  double nll = 0;
  for (std::size_t i = 0; i < losses.size(); ++i) {
    const double weight = options.has("loss_weights") ? parse_real(options.list("loss_weights")[i]).value() : 1.0;
    kernels::PreferenceSpec spec = preference_spec(options, losses[i]);
    nll = losses[i] == "sft" ? weight : std::max(nll, spec.nll);
    spec.nll = 0;
    if (losses[i] != "sft" || losses.size() == 1) terms.push_back({spec, weight});
  }
  terms.front().spec.nll = nll;
  return terms;
}

kernels::PreferenceSpec preference_spec(const Options& options) {
  if (learns_rewards(options)) return {};  // another loss
  return preference_terms(options).front().spec;
}

ReferenceSource reference_source(const Options& options, const models::Model& model) {
  if (options.text("rlhf_type") != "dpo" && options.text("rlhf_type") != "kto") return ReferenceSource::none;
  if (options.flag("precompute_ref_log_probs")) return ReferenceSource::known;
  if (options.has("ref_model") || !model.lora) return ReferenceSource::own;
  const bool base_is_frozen = std::ranges::none_of(
      model.own_params(), [](const ParamSpec& param) { return param.trainable && !param.adapter; });
  return base_is_frozen ? ReferenceSource::shared : ReferenceSource::own;
}

std::string reference_directory(const Options& options, const std::string& model_directory) {
  return options.has("ref_model") ? options.text("ref_model") : model_directory;
}

void add_preferences(models::Model& model, const Options& options, const std::string& config_json,
                     const std::string& source) {
  if (!learns_preferences(options)) return;
  if (learns_rewards(options) && model.router.layers > 0)
    throw Error(ExitCode::usage, "reward models of mixtures of experts are not built: " + source, "--rlhf_type rm",
                "Use a dense model");
  if (learns_rewards(options))
    return models::set_loss(model, models::reward_loss({.pad_token = model.pad_token, .center = center_of(options)}));
  models::set_loss(model, models::preference_loss(preference_terms(options)));
  const ReferenceSource from = reference_source(options, model);
  if (from == ReferenceSource::none) return;
  models::Model reference = reference_model(options, config_json, source, model.dtype);
  if (reference.vocab != model.vocab)
    throw options.refuse(
        "ref_model",
        strfmt("the reference model has a vocabulary of %ld, and the model one of %ld", reference.vocab, model.vocab),
        "Give a reference model with as many tokens in its vocabulary (config.json: vocab_size)");
  const std::int64_t tokens =
      options.optional_integer("max_length").value_or(std::min(model.max_tokens, default_max_length));
  if (options.has("ref_model") && tokens > reference.max_tokens && reference.max_tokens < model.max_tokens)
    throw options.refuse("ref_model",
                         strfmt("the reference model of --ref_model has %ld positions", reference.max_tokens) +
                             reference.limit_note() + strfmt(", and a row may have %ld tokens", tokens),
                         strfmt("Give --max_length %ld", reference.max_tokens));
  if (reference.score >= 0)
    throw options.refuse("ref_model", "the reference is a reward model, which has no next tokens",
                         "Give a language model");
  if (from == ReferenceSource::known) return;
  if (from == ReferenceSource::shared) {
    if (options.has("ref_quant_bits"))
      throw options.refuse("ref_quant_bits",
                           "--ref_quant_bits has no effect: the reference is the model without its adapters",
                           "Drop it, or name a second model with --ref_model");
    quantize_base(reference, options, config_json, source, /*trains=*/false);  // its weights are not trained
  } else {
    quantize_reference(reference, options, config_json, source);
  }
  models::set_loss(reference, models::target_log_probs());
  models::add_reference(model, std::move(reference),
                        from == ReferenceSource::own ? models::ReferenceParams::own : models::ReferenceParams::shared);
}

void set_preferences(plan::RunSpec& spec, const Options& options) {
  if (!learns_preferences(options)) return;
  spec.labels = learns_labels(options);
  spec.needs_kl = needs_kl(options);
  spec.margins = learns_rewards(options);
  spec.sequences = spec.labels ? 1 : 2;
  spec.packed = true;  // a row is a document and its padding
  spec.reference_sums = reference_source(options, *spec.model) == ReferenceSource::known;
  spec.nll_weights = preference_spec(options).nll != 0;
}

/// The texts that a tokenizer.json has ids for; null: it is none that is known here.
static nlohmann::json vocabulary_in(const std::string& path) {
  nlohmann::json json = nlohmann::json::parse(io::read_text(path), nullptr, /*allow_exceptions=*/false);
  if (!json.is_object() || !json.contains("model") || !json["model"].is_object()) return {};
  return json["model"].value("vocab", nlohmann::json());
}

/// W067: the reference would read the ids as other texts.
static void compare_vocabularies(const std::string& directory, const std::string& reference) {
  const std::string ours = directory + "/tokenizer.json", other = reference + "/tokenizer.json";
  if (io::exists(ours) && io::exists(other) && vocabulary_in(ours) != vocabulary_in(other))
    log::warn(67, "the vocabulary of " + other + " is not that of " + ours +
                      ": the reference model reads the same ids as other texts");
}

void read_reference(World& world, const Options& options, const ModelConfig& config, const plan::RunPlan& plan,
                    std::span<const io::ShardView> shards) {
  const models::Model& model = *plan.spec.model;
  const std::string directory = reference_directory(options, config.directory);
  if (options.has("ref_model")) world.run_on_rank_0([&] { compare_vocabularies(config.directory, directory); });
  if (model.reference_params == 0) return;
  world.run_and_agree([&] {
    if (io::exists(directory + "/" + io::manifest_name))
      throw Error(ExitCode::data,
                  directory + " is a checkpoint, and a reference model is read from a model's directory",
                  options.has("ref_model") ? "--ref_model" : "--model",
                  "Make one of it: tessera convert --in " + directory + " --to hf --out DIR");
  });
  const models::Model reference = reference_model(options, config.text, config.path, model.dtype);
  std::vector<ParamSpec> params = model.params;  // the model's own as what is not looked for
  for (std::size_t p = 0; p < model.own_params().size(); ++p) params[p].adapter = true;
  (void)io::read_model(world, directory, params, plan.layout, shards, [&](const std::string& name) {
    TensorUse use = models::tensor_use(reference, name);
    for (std::string& part : use.parts) part = models::reference_prefix + part;
    if (!use.same_as.empty()) use.same_as = models::reference_prefix + use.same_as;
    return use;
  });
}

double center_of(const Options& options) {
  return options.has("center_rewards_coefficient") ? options.real("center_rewards_coefficient") : 0.0;
}

QuantFormat format_of_reference(const Options& options, const models::Model& model, const ModelConfig& config) {
  const ReferenceSource from = reference_source(options, model);
  if (from != ReferenceSource::own && from != ReferenceSource::known) return QuantFormat::none;
  const auto [text, path] = reference_config(options, config.text, config.path);
  return quantization_of_reference(options, text, path);
}

/// "rm | a new score head, N(0, 0.02)".
static std::string reward_line(const Options& options, const models::Model& model, const ModelConfig& config) {
  std::string text = "rm";
  if (const double center = center_of(options); center != 0)
    text += strfmt(", and %g times the squared sum of a pair's scores", center);
  if (options.has("adapters")) return text + " | the score head of " + options.text("adapters");
  if (!config.new_score) return text + " | the score head of " + config.directory;
  return text + strfmt(" | a new score head, N(0, %g) by --seed",
                       model.params[static_cast<std::size_t>(model.score)].init.std);
}

std::string preference_line(const Options& options, const models::Model& model, const ModelConfig& config) {
  if (learns_rewards(options)) return reward_line(options, model, config);
  const kernels::PreferenceSpec spec = preference_spec(options);
  const std::string type = options.text("rlhf_type");
  std::string text = type;
  if (loss_of(options) != type) text += " " + loss_of(options);
  if (options.has("loss_weights")) {
    text += ", weights";
    for (const std::string& weight : options.list("loss_weights")) text += " " + weight;
  }
  text += strfmt(", beta %g", spec.beta);
  if (spec.label_smoothing > 0) text += strfmt(", label_smoothing %g", spec.label_smoothing);
  if (options.text("f_divergence_type") != "reverse_kl") {
    text += ", " + options.text("f_divergence_type");
    if (spec.divergence == kernels::Divergence::alpha_divergence) text += strfmt(" %g", spec.alpha);
  }
  if (spec.tail_weight != 1) text += strfmt(", ld_alpha %g", spec.tail_weight);
  if (spec.weighted) text += ", pairs weighted as in WPO";
  if (type == "simpo") text += strfmt(", gamma %g", spec.gamma);
  if (spec.desirable_weight != 1 || spec.undesirable_weight != 1)
    text += strfmt(", weights %g and %g", spec.desirable_weight, spec.undesirable_weight);
  if (spec.nll != 0) text += strfmt(", and %g times the cross-entropy of chosen answers", spec.nll);
  switch (reference_source(options, model)) {
    case ReferenceSource::none: break;
    case ReferenceSource::known: text += " | reference: log-probabilities computed before training"; break;
    case ReferenceSource::shared: text += " | reference: the model without its adapters"; break;
    case ReferenceSource::own:
      text += " | reference: " + (options.has("ref_model") ? options.text("ref_model") : "a frozen copy of the start");
  }
  if (const QuantFormat format = format_of_reference(options, model, config); format != QuantFormat::none)
    text += strfmt(" in %s", name_of(format));
  return text;
}

void check_labels(const Options& options, const io::PackedStream& samples) {
  std::int64_t chosen = 0;
  for (std::int64_t k = 0; k < samples.count().samples; ++k) chosen += samples.is_chosen(k) ? 1 : 0;
  const std::int64_t rejected = samples.count().samples - chosen;
  if (chosen == 0 || rejected == 0)
    throw Error(ExitCode::data,
                strfmt("all %ld answers of the training data are %s", samples.count().samples,
                       chosen > 0 ? "desirable" : "undesirable"),
                "--rlhf_type kto", "Give rows of both labels: KTO learns from their difference");
  const double ratio = static_cast<double>(rejected) / static_cast<double>(chosen),
               desirable = options.real("desirable_weight"), undesirable = options.real("undesirable_weight");
  // Equation 8 of the paper (arXiv 2402.01306): the weight times the number of one class is 1 to 4/3 of the other's.
  constexpr double most = 1.33, rounding = 0.005;
  const double low = ratio * undesirable, other_low = desirable / ratio / most;
  const auto within = [](double value, double from) {
    return value >= from - rounding && value <= from * most + rounding;
  };
  if (chosen == rejected || within(desirable, low) || within(undesirable, other_low)) return;
  log::warn(85, strfmt("%ld answers are desirable and %ld undesirable: set desirable_weight to %.2f to %.2f, or "
                       "undesirable_weight to %.2f to %.2f, so that both count alike",
                       chosen, rejected, low, low * most, other_low, other_low * most));
}

}  // namespace tessera::jobs
