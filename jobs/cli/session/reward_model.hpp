// SPDX-License-Identifier: Apache-2.0
#pragma once
// Reward models (--rlhf_type rm): the config.json of the one that a run makes of a language model, and where reward
// models are not used.

#include <string>

#include "jobs/cli/session/setup.hpp"

namespace tessera::jobs {

/// True with --rlhf_type rm.
[[nodiscard]] bool learns_rewards(const Options& options);

/// What a config has for the token that pads: the tokenizer's, which is read for it; or any, where sizes alone matter.
enum class PadToken : unsigned char { of_tokenizer, any };
/// One process. Makes the config of the reward model of a language model's, if the run trains one, or if the config's
/// adapter has a score. Throws Error (usage).
void make_reward_config(const Options& options, ModelConfig& config, PadToken pad);
/// True if the adapter is of a reward model: "task_type" SEQ_CLS, or "score" in modules_to_save.
[[nodiscard]] bool is_reward_adapter(const AdapterConfig& adapter);

/// Throws Error (usage) if the model is a reward model. `command`: "generate".
void refuse_reward_model(const models::Model& model, const std::string& command, const std::string& source);
/// Of a training run: throws Error (usage) if it trains a reward model in another way, or a reward model's adapter has
/// no score.
void check_reward_model(const models::Model& model, const Options& options, const AdapterConfig& adapter,
                        const std::string& source);

}  // namespace tessera::jobs
