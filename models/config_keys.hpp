// SPDX-License-Identifier: Apache-2.0
#pragma once
// Which keys of a config.json are known: read by a family, or without effect on what a model computes.

#include <string>
#include <vector>

#include "models/config_reader.hpp"

namespace tessera::models {

/// Throws Error (usage) for a key with a value that some family reads, but that of this config, which has been made,
/// has not; for a key of the rope objects that is not known; for a null that was read, and that transformers does not
/// take as it takes a missing key; and for a key of any family that means another model, as "is_causal". What a family
/// asks for is the list of what it allows.
void refuse_unsupported_keys(const ConfigReader& config);

/// "resid_pdrop = 0.1, …"; "" if no key asks for dropout.
[[nodiscard]] std::string dropout_of(const ConfigReader& config);

/// The keys of a config.json that are not known, sorted. Those whose value is null, or an empty string, list or object
/// do not count. Empty for a text that make refuses: no JSON object, no supported family.
[[nodiscard]] std::vector<std::string> unknown_config_keys(const std::string& config_json);

}  // namespace tessera::models
