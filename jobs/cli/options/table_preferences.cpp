// SPDX-License-Identifier: Apache-2.0
// Part of the option table: training on preferences, --stage rlhf.
#include "jobs/cli/options/table_parts.hpp"

namespace tessera::jobs {

namespace {

constexpr unsigned for_preferences = for_train | for_plan | for_config, for_pairs = for_preferences | for_eval;

// One option per paragraph reads better than one field per line.
// clang-format off

const OptionSpec preference_table[] = {
    {.name = "rlhf_type", .type = Type::choice, .default_value = "dpo", .values = "dpo|kto|cpo|simpo|orpo|rm",
     .group = "Preferences",
     .help = "how a model learns from pairs of a chosen and a rejected answer, or (kto) from answers with a label; rm "
             "makes a reward model of it; tessera dpo is tessera rlhf --rlhf_type dpo (docs/preferences.md)",
     .equivalents = "ms-swift --rlhf_type; TRL's trainers", .commands = for_pairs | for_tokenize},
    {.name = "beta", .type = Type::real, .values = "X", .group = "Preferences",
     .help = "strength of the preference: of dpo, kto and cpo, how far the model may move from its reference; of "
             "orpo, the weight of the log-odds [0.1; simpo: 2]",
     .equivalents = "ms-swift, TRL --beta", .commands = for_pairs, .min = 1e-9},
    {.name = "loss_type", .type = Type::list,
     .values = "sigmoid|hinge|ipo|robust|exo_pair|nca_pair|bco_pair|sppo_hard|apo_zero|apo_down|discopop|aot|"
               "aot_unpaired|sigmoid_norm|sft|kto|apo_zero_unpaired",
     .group = "Preferences",
     .help = "loss of dpo [sigmoid], or several, whose weighted sum is the loss (sigmoid bco_pair sft: MPO); of cpo: sigmoid, hinge or ipo; of kto: kto or apo_zero_unpaired, which has no KL "
             "[kto]",
     .equivalents = "ms-swift, TRL --loss_type", .commands = for_pairs},
    {.name = "loss_weights", .type = Type::list, .values = "X ...", .group = "Preferences",
     .help = "dpo: a weight for each of several losses of --loss_type [1 each]",
     .equivalents = "ms-swift, TRL --loss_weights", .commands = for_pairs},
    {.name = "label_smoothing", .type = Type::real, .default_value = "0", .group = "Preferences",
     .help = "probability that a pair is labelled the wrong way round: of sigmoid, simpo, robust, aot, aot_unpaired and "
             "exo_pair (there 0.001, if it is not given)",
     .equivalents = "ms-swift, TRL --label_smoothing", .commands = for_pairs, .min = 0, .max = 0.499999},
    {.name = "discopop_tau", .type = Type::real, .default_value = "0.05", .values = "X", .group = "Preferences",
     .help = "dpo with --loss_type discopop: scale of the margins between its two losses",
     .equivalents = "TRL, ms-swift --discopop_tau", .commands = for_pairs, .min = 1e-9},
    {.name = "f_divergence_type", .type = Type::choice, .default_value = "reverse_kl",
     .values = "reverse_kl|forward_kl|js_divergence|alpha_divergence", .group = "Preferences",
     .help = "dpo with sigmoid, sigmoid_norm, hinge, ipo or robust: the divergence that a model is kept near its reference by",
     .equivalents = "ms-swift, TRL --f_divergence_type", .commands = for_pairs},
    {.name = "f_alpha_divergence_coef", .type = Type::real, .default_value = "0.5", .values = "X", .group = "Preferences",
     .help = "dpo with --f_divergence_type alpha_divergence: its α", .equivalents = "TRL --f_alpha_divergence_coef",
     .commands = for_pairs},
    {.name = "ld_alpha", .type = Type::real, .values = "X", .group = "Preferences",
     .help = "dpo: weight of the tokens of a pair's longer answer past as many as the shorter one has, in the "
             "log-probabilities of model and reference (LD-DPO) [1]",
     .equivalents = "TRL --ld_alpha; ms-swift's is of the model alone", .commands = for_pairs, .min = 0, .max = 1},
    {.name = "use_weighting", .type = Type::flag, .default_value = "false", .group = "Preferences",
     .help = "dpo: multiply the loss of a pair by e^(mean over tokens of log p - log Σp²) of both answers, p being the "
             "model's probabilities (WPO)",
     .equivalents = "TRL --use_weighting", .commands = for_pairs},
    {.name = "rpo_alpha", .type = Type::real, .values = "X", .group = "Preferences",
     .help = "dpo: adds X times the cross-entropy of the chosen answers [none]", .equivalents = "ms-swift --rpo_alpha",
     .commands = for_pairs, .min = 0},
    {.name = "cpo_alpha", .type = Type::real, .default_value = "1", .values = "X", .group = "Preferences",
     .help = "cpo, simpo: adds X times the cross-entropy of the chosen answers; 0 is SimPO as published",
     .equivalents = "ms-swift, TRL --cpo_alpha", .commands = for_pairs, .min = 0},
    {.name = "simpo_gamma", .type = Type::real, .values = "X", .group = "Preferences",
     .help = "simpo: the margin that a pair shall reach [1]", .equivalents = "ms-swift, TRL --simpo_gamma",
     .commands = for_pairs},
    {.name = "center_rewards_coefficient", .type = Type::real, .values = "X", .group = "Preferences",
     .help = "rm: adds X times the squared sum of a pair's scores, which keeps their mean near 0; 0.01 is a usual "
             "value [none]",
     .equivalents = "ms-swift, TRL --center_rewards_coefficient", .commands = for_pairs, .min = 0},
    {.name = "desirable_weight", .type = Type::real, .default_value = "1", .values = "X", .group = "Preferences",
     .help = "kto: weight of the answers that are wanted", .equivalents = "ms-swift, TRL --desirable_weight",
     .commands = for_pairs, .min = 0},
    {.name = "undesirable_weight", .type = Type::real, .default_value = "1", .values = "X", .group = "Preferences",
     .help = "kto: weight of the answers that are not", .equivalents = "ms-swift, TRL --undesirable_weight",
     .commands = for_pairs, .min = 0},
    {.name = "kl_group_size", .type = Type::integer, .values = "N", .group = "Preferences",
     .help = "kto: how many answers that follow one another in the data form a group; each prompt takes the answer "
             "before it in its group for the KL [per_device_train_batch_size; of a resumed run, the checkpoint's; eval: "
             "per_device_eval_batch_size]",
     .equivalents = "TRL: its micro-batch", .commands = for_pairs, .min = 2},
    {.name = "ref_model", .values = "DIR", .group = "Preferences",
     .help = "dpo, kto: the reference model, beside the one that is trained [LoRA: the base without its adapters; "
             "otherwise a frozen copy of --model]",
     .equivalents = "ms-swift, TRL --ref_model", .commands = for_pairs},
    {.name = "ref_quant_bits", .type = Type::choice, .values = "none|4|8", .group = "Preferences",
     .help = "dpo, kto: bits of the reference model's Linears, as --quant_bits of the base's; with the same --bnb_4bit_* "
             "[--quant_bits]",
     .equivalents = "ms-swift, TRL: those of the model", .commands = for_pairs},
    {.name = "precompute_ref_log_probs", .type = Type::flag, .default_value = "false", .group = "Preferences",
     .help = "dpo, kto: compute the reference's log-probabilities in one pass before training, and keep them in "
             "--cache_dir; no second model is then in memory",
     .equivalents = "TRL --precompute_ref_log_probs", .commands = for_preferences},
};

// clang-format on

}  // namespace

std::span<const OptionSpec> preference_options() { return preference_table; }

}  // namespace tessera::jobs
