// SPDX-License-Identifier: Apache-2.0
#pragma once
// --stage rlhf: the loss of pairs, and where its reference's log-probabilities come from.

#include <optional>
#include <string>
#include <vector>

#include "io/data/packing.hpp"
#include "jobs/cli/session/setup.hpp"
#include "kernels/preference_loss.hpp"
#include "models/module.hpp"
#include "models/preference_loss.hpp"

namespace tessera::jobs {

/// Where the log-probabilities of the reference come from: the loss has none; they are computed before training; the
/// model without its adapters; a second frozen model.
enum class ReferenceSource : unsigned char { none, known, shared, own };

/// True with --stage rlhf.
[[nodiscard]] bool learns_preferences(const Options& options);
/// True with --rlhf_type kto: samples are single answers, each with a label.
[[nodiscard]] bool learns_labels(const Options& options);
/// True if the loss of labelled answers has a KL in it.
[[nodiscard]] bool needs_kl(const Options& options);
/// True if a loss sorts the pairs of a micro-batch together (aot, aot_unpaired).
[[nodiscard]] bool sorts_pairs(const Options& options);
/// How many answers form a group, whose prompts take one another's answers for the KL: --kl_group_size, or the
/// micro-batch; 0: the loss has no KL.
[[nodiscard]] std::int64_t kl_group(const Options& options, std::int64_t micro_batch);
/// --loss_type, or the type's own; of dpo it may be several.
[[nodiscard]] std::vector<std::string> losses_of(const Options& options);
/// The same in one text, "sigmoid bco_pair".
[[nodiscard]] std::string loss_of(const Options& options);
/// Throws Error (usage) for options of preferences that contradict one another, have no effect, or do not go with what
/// else a run does.
void check_preference_options(const Options& options);

/// The loss that the options ask for, with their defaults; of several, the first, with the cross-entropy of all.
[[nodiscard]] kernels::PreferenceSpec preference_spec(const Options& options);
/// All of them, with their weights.
[[nodiscard]] std::vector<models::PreferenceTerm> preference_terms(const Options& options);
/// `model`: with its adapters.
[[nodiscard]] ReferenceSource reference_source(const Options& options, const models::Model& model);
/// The directory of the reference model: --ref_model, or the model's own.
[[nodiscard]] std::string reference_directory(const Options& options, const std::string& model_directory);

/// The format of a second reference model's Linears, or of one that runs before training; none: floats, or the run has
/// no such model. Throws Error (usage) as quantization_of_reference.
[[nodiscard]] QuantFormat format_of_reference(const Options& options, const models::Model& model,
                                              const ModelConfig& config);

/// What the settings of a checkpoint call the result of kl_group.
inline constexpr const char* kl_group_setting = "kl_group_size";
/// What the settings of a checkpoint call it.
inline constexpr const char* reference_setting = "reference_files";
/// Of the files of a reference that is read from a directory: names, sizes and times; and of its format. "": there is
/// none.
[[nodiscard]] std::string reference_stamp(const Options& options, const models::Model& model,
                                          const ModelConfig& config);

/// Gives a training model the loss of pairs and its reference model, if the run has --stage rlhf. `config_json`: the
/// model's. Throws Error (usage): the model or the reference is not supported.
void add_preferences(models::Model& model, const Options& options, const std::string& config_json,
                     const std::string& source);
/// What the plan of such a run needs to know.
void set_preferences(plan::RunSpec& spec, const Options& options);

/// Collective. Reads the weights of a reference model of its own into its shards; nothing if the run has none. Throws
/// Error (data) on every rank.
void read_reference(World& world, const Options& options, const ModelConfig& config, const plan::RunPlan& plan,
                    std::span<const io::ShardView> shards);

/// Of the training samples of learns_labels: throws Error (data) if they have one label only. W085: one label has more
/// weight than the other.
void check_labels(const Options& options, const io::PackedStream& samples);

/// What precompute_reference needs of a run.
struct ReferencePass {
  const Options& options;
  World& world;
  const ModelConfig& config;
  const plan::RunSpec& run;  // of training
};
/// Collective. Gives all samples of a run the reference's log-probabilities: from --cache_dir, under a hash of model,
/// samples and precision, or computed now with the reference alone in memory. Throws Error.
void precompute_reference(const ReferencePass& of, RunData& data);

/// --center_rewards_coefficient; 0 if it is not given.
[[nodiscard]] double center_of(const Options& options);

/// "dpo sigmoid, beta 0.1 | reference: the model without its adapters".
[[nodiscard]] std::string preference_line(const Options& options, const models::Model& model,
                                          const ModelConfig& config);

}  // namespace tessera::jobs
