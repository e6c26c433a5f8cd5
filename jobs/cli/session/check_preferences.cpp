// SPDX-License-Identifier: Apache-2.0
// Options of preferences that contradict one another, have no effect, or do not go with what else a run does.
#include <algorithm>

#include "jobs/cli/options/values.hpp"
#include "jobs/cli/session/preferences.hpp"
#include "jobs/cli/session/reward_model.hpp"

namespace tessera::jobs {

namespace {

constexpr const char* preference_names[] = {"rlhf_type",
                                            "beta",
                                            "loss_type",
                                            "loss_weights",
                                            "discopop_tau",
                                            "label_smoothing",
                                            "f_divergence_type",
                                            "f_alpha_divergence_coef",
                                            "ld_alpha",
                                            "use_weighting",
                                            "rpo_alpha",
                                            "cpo_alpha",
                                            "ref_model",
                                            "ref_quant_bits",
                                            "simpo_gamma",
                                            "desirable_weight",
                                            "undesirable_weight",
                                            "kl_group_size",
                                            "precompute_ref_log_probs",
                                            "center_rewards_coefficient"};

/// Throws Error (usage) for an option that is given and is of other types than the run's.
void require_type(const Options& options, const char* name, bool has_effect, const char* of) {
  if (has_effect || !options.given(name)) return;
  throw options.refuse(name,
                       strfmt("--%s is for %s, and --rlhf_type is %s", name, of, options.text("rlhf_type").c_str()),
                       strfmt("Drop --%s", name));
}

bool has_loss(const Options& options, std::string_view loss) {
  const std::vector<std::string> losses = losses_of(options);
  return std::ranges::find(losses, loss) != losses.end();
}

/// Of several losses.
void check_losses(const Options& options) {
  const std::vector<std::string> losses = losses_of(options);
  if (losses.size() > 1 && options.text("rlhf_type") != "dpo")
    throw options.refuse("loss_type", "--rlhf_type " + options.text("rlhf_type") + " has one loss at a time",
                         "Give one --loss_type");
  for (const std::string& loss : losses)
    if (std::ranges::count(losses, loss) > 1)
      throw options.refuse("loss_type", "--loss_type names " + loss + " twice", "Give it a weight with --loss_weights");
  if (!options.has("loss_weights")) return;
  const std::vector<std::string>& weights = options.list("loss_weights");
  if (losses.size() < 2 || weights.size() != losses.size())
    throw options.refuse(
        "loss_weights",
        strfmt("--loss_weights has %zu weights, and --loss_type %zu losses", weights.size(), losses.size()),
        "Give one for each of several losses");
  for (const std::string& weight : weights)
    if (const auto value = parse_real(weight); !value || *value < 0)
      throw options.refuse("loss_weights", "--loss_weights " + weight + ": expected a number, at least 0", "");
}

void check_divergence(const Options& options) {
  const std::string type = options.text("f_divergence_type");
  require_type(options, "f_divergence_type", options.text("rlhf_type") == "dpo", "dpo");
  require_type(options, "f_alpha_divergence_coef", type == "alpha_divergence",
               "dpo with --f_divergence_type alpha_divergence");
  if (type == "reverse_kl") return;
  for (const char* loss : {"exo_pair", "nca_pair", "bco_pair", "sppo_hard", "apo_zero", "apo_down", "aot",
                           "aot_unpaired", "discopop", "sft"})
    if (has_loss(options, loss) && (loss != std::string_view("sft") || losses_of(options).size() == 1))
      throw options.refuse("f_divergence_type",
                           std::string("--f_divergence_type is for other losses, and not for ") + loss,
                           "Use --loss_type sigmoid, sigmoid_norm, hinge, ipo or robust");
}

void check_weighting(const Options& options) {
  require_type(options, "ld_alpha", options.text("rlhf_type") == "dpo", "dpo");
  require_type(options, "use_weighting", options.text("rlhf_type") == "dpo", "dpo");
  if (!options.flag("use_weighting")) return;
  for (const char* loss : {"aot", "aot_unpaired", "sft"})
    if (has_loss(options, loss))
      throw options.refuse(
          "use_weighting",
          std::string("--use_weighting weighs the loss of each pair, and --loss_type ") + loss + " is not one of each",
          std::string("Drop --use_weighting, or ") + loss);
  if (options.given("rpo_alpha"))
    throw options.refuse("use_weighting",
                         "--use_weighting weighs the loss of each pair, and the cross-entropy of --rpo_alpha is of all",
                         "Drop one of the two");
}

/// Of reward models, whose loss is of whole sequences.
void check_rewards(const Options& options) {
  if (options.given("loss_scale"))
    throw options.refuse("loss_scale",
                         "--loss_scale has no effect with --rlhf_type rm: the score is of a whole sequence", "Drop it");
  for (const char* name : {"sample_prompt", "prompt_file"})
    if (options.has(name))
      throw options.refuse(name,
                           std::string("--") + name + " is for language models, and --rlhf_type rm trains a score",
                           std::string("Drop --") + name);
}

/// The option of the micro-batch, and its size.
struct MicroBatch {
  const char* option;
  std::int64_t size;
};
MicroBatch micro_batch_of(const Options& options) {
  if (options.commands == for_eval) return {"per_device_eval_batch_size", eval_rows_of(options)};
  constexpr const char *name = "per_device_train_batch_size", *all = "global_batch_size";
  const std::int64_t size = options.optional_integer(name).value_or(1),
                     most = options.optional_integer(all).value_or(size);
  return most < size ? MicroBatch{all, most} : MicroBatch{name, size};
}

void check_sorted(const Options& options) {
  if (!sorts_pairs(options) || options.commands == for_tokenize) return;
  MicroBatch micro = micro_batch_of(options);
  if (constexpr const char* eval = "per_device_eval_batch_size"; micro.size >= 2 && options.given(eval))
    micro = {eval, eval_rows_of(options)};
  if (micro.size < 2)
    throw options.refuse(
        micro.option,
        "--loss_type " + loss_of(options) + " sorts the pairs of a micro-batch, and this one would have one",
        "Set it to 2 or more, or use --loss_type sigmoid");
}

void check_kto(const Options& options) {
  if (options.text("loss_scale") != "last_round")
    throw options.refuse("loss_scale", "--rlhf_type kto has the loss of one answer, the last one of a row",
                         "Use --loss_scale last_round");
  const MicroBatch micro = micro_batch_of(options);
  if (needs_kl(options) && !options.has("kl_group_size") && micro.size < 2)
    throw options.refuse(
        micro.option,
        "the KL of --rlhf_type kto is of the answers to other prompts of a micro-batch, and this one "
        "would have one answer",
        "Set it to 2 or more, give --kl_group_size, or use --loss_type apo_zero_unpaired, which has no KL");
  if (options.real("desirable_weight") == 0 && options.real("undesirable_weight") == 0)
    throw options.refuse("undesirable_weight", "both weights of --rlhf_type kto are 0, and so would be the loss",
                         "Set --desirable_weight or --undesirable_weight above 0");
}

}  // namespace

void check_preference_options(const Options& options) {
  if (!learns_preferences(options)) {
    for (const char* name : preference_names)
      if (options.given(name))
        throw options.refuse(name, std::string("--") + name + " has no effect without --stage rlhf",
                             "Use tessera rlhf, or drop it");
    return;
  }
  const std::string type = options.text("rlhf_type"), loss = loss_of(options);
  const bool dpo = type == "dpo", simpo = type == "simpo", orpo = type == "orpo", kto = type == "kto",
             rm = type == "rm";
  if (rm) check_rewards(options);
  require_type(options, "beta", !rm, "the types that compare with a reference, or with a margin");
  require_type(options, "center_rewards_coefficient", rm, "rm");
  require_type(options, "loss_type", dpo || kto || type == "cpo", "dpo, kto and cpo");
  check_losses(options);
  if (type == "cpo" && loss != "sigmoid" && loss != "hinge" && loss != "ipo")
    throw options.refuse("loss_type", "--loss_type " + loss + " is not one of --rlhf_type cpo",
                         "Use sigmoid, hinge or ipo");
  require_type(options, "discopop_tau", has_loss(options, "discopop"), "dpo with --loss_type discopop");
  if (has_loss(options, "sft") && options.given("rpo_alpha"))
    throw options.refuse("rpo_alpha", "the cross-entropy is the loss of --loss_type sft", "Drop --rpo_alpha");
  const bool is_labelled = has_loss(options, "kto") || has_loss(options, "apo_zero_unpaired");
  if (kto != is_labelled)
    throw options.refuse("loss_type", "--loss_type " + loss + " is not one of --rlhf_type " + type,
                         kto ? "Use kto or apo_zero_unpaired" : "Use --rlhf_type kto, or another loss");
  if (kto) check_kto(options);
  require_type(options, "desirable_weight", kto, "kto");
  require_type(options, "undesirable_weight", kto, "kto");
  require_type(options, "kl_group_size", needs_kl(options), "kto with --loss_type kto");
  require_type(options, "label_smoothing", !orpo && !kto && !rm, "dpo, cpo and simpo");
  const bool smooths = std::ranges::any_of(losses_of(options), [](const std::string& of) {
    return of == "sigmoid" || of == "simpo" || of == "robust" || of == "exo_pair" || of.starts_with("aot");
  });
  if (options.real("label_smoothing") > 0 && !smooths)
    throw options.refuse("label_smoothing", "--label_smoothing has no effect with --loss_type " + loss,
                         "Drop it, or use --loss_type sigmoid, robust, exo_pair, aot or aot_unpaired");
  if (has_loss(options, "exo_pair") && options.given("label_smoothing") && options.real("label_smoothing") == 0)
    throw options.refuse("label_smoothing", "--loss_type exo_pair takes the logarithm of label_smoothing",
                         "Give more than 0, or drop it: then it is 0.001");
  check_divergence(options);
  check_weighting(options);
  check_sorted(options);
  require_type(options, "rpo_alpha", dpo, "dpo");
  require_type(options, "cpo_alpha", simpo || type == "cpo", "cpo and simpo");
  require_type(options, "simpo_gamma", simpo, "simpo");
  require_type(options, "ref_model", dpo || kto, "dpo and kto: the other types have no reference model");
  require_type(options, "ref_quant_bits", dpo || kto, "dpo and kto: the other types have no reference model");
  require_type(options, "precompute_ref_log_probs", dpo || kto, "dpo and kto: the other types have no reference model");
  if (options.flag("packing"))
    throw options.refuse("packing",
                         "--packing does not go with --stage rlhf: batches are counted in pairs, or labelled answers, "
                         "and packed rows have any number of them",
                         "Use --padding_free true, which leaves no padding either");
  if (options.flag("from_scratch"))
    throw options.refuse("from_scratch",
                         "--from_scratch does not go with --stage rlhf: preferences move a model that "
                         "has learned to answer",
                         "Give --model DIR with weights");
  if (options.text("truncation_strategy") == "split")
    throw options.refuse("truncation_strategy", "--truncation_strategy split would part an answer",
                         "Use delete, right or left");
  if (options.text("baseline") == "bigram")
    throw options.refuse("baseline", "--baseline bigram is a loss of texts", "Drop --baseline");
}

}  // namespace tessera::jobs
