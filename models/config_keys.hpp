// SPDX-License-Identifier: Apache-2.0
#pragma once
// Which keys of a config.json are known: read by a family, or without effect on what a model computes.

#include <string>
#include <vector>

namespace tessera::models {

/// The keys of a config.json that are not known, sorted; those of the rope objects as "rope_scaling.KEY". Those whose
/// value is null, false, or an empty string, list or object do not count. Empty for a text that make refuses: no JSON
/// object, no supported family.
[[nodiscard]] std::vector<std::string> unknown_config_keys(const std::string& config_json);

}  // namespace tessera::models
