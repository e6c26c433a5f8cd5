// SPDX-License-Identifier: Apache-2.0
#pragma once
// Reward models: transformers' …ForSequenceClassification with one label, which is the decoder of a language model with
// a linear score of the last token in place of lm_head.

#include <string>

#include "models/config_reader.hpp"
#include "models/module.hpp"

namespace tessera::models {

inline constexpr const char* score_weight = "score.weight";  // its name in model files

/// True if "architectures" of a config.json names a …ForSequenceClassification.
[[nodiscard]] bool has_score(const std::string& config_json);

/// Gives a language model the head of its reward model: Model::score, Model::pad_token, and the loss of pairs. Throws
/// Error (usage): another number of labels than 1, no pad_token_id.
void make_score(Model& model, const ConfigReader& config);

/// The config.json of a language model's reward model: "architectures", one label, and `pad_token` as "pad_token_id".
/// That of a reward model gets the latter alone, as in TRL. Throws Error (usage): transformers has no such
/// class for the family. `source`: the file's name, for messages.
[[nodiscard]] std::string reward_config(const std::string& config_json, std::int64_t pad_token,
                                        const std::string& source);

}  // namespace tessera::models
