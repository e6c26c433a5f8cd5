// SPDX-License-Identifier: Apache-2.0
// Warnings of keys and classes.
#include "jobs/cli/session/config_warnings.hpp"

#include <algorithm>

#include "models/architectures.hpp"
#include "models/config_keys.hpp"
#include "runtime/base/log.hpp"

namespace tessera::jobs {

void warn_of_config(const ModelConfig& config) {
  constexpr std::size_t most = 12;
  const std::vector<std::string> keys = models::unknown_config_keys(config.text);
  std::string list;
  for (std::size_t i = 0; i < std::min(keys.size(), most); ++i) list += (i > 0 ? ", \"" : "\"") + keys[i] + "\"";
  if (keys.size() > most) list += strfmt(" and %zu more", keys.size() - most);
  if (!list.empty())
    log::warn(74, config.path + " has keys that are not known here and not read: " + list +
                      ". If one of them changes what the model computes, another model is computed here");
  std::string classes;
  for (const std::string& name : models::other_architectures(config.text))
    classes += (classes.empty() ? "\"" : ", \"") + name + "\"";
  if (!classes.empty())
    log::warn(78, "\"architectures\" of " + config.path + " has " + classes +
                      ", which is no class of a language model that is known here: the model is read as a causal " +
                      "language model");
}

}  // namespace tessera::jobs
