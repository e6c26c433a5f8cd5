// SPDX-License-Identifier: Apache-2.0
// Warnings of keys and classes.
#include "jobs/cli/session/config_warnings.hpp"

#include <algorithm>
#include <span>

#include "io/file/file.hpp"
#include "models/architectures.hpp"
#include "models/config_keys.hpp"
#include "runtime/base/log.hpp"

namespace tessera::jobs {

namespace {

std::string quoted_list(std::span<const std::string> names) {
  std::string list;
  for (const std::string& name : names) list += (list.empty() ? "" : ", ") + io::quote_name(name);
  return list;
}

}  // namespace

void warn_of_config(const ModelConfig& config) {
  constexpr std::size_t most = 12;
  const std::vector<std::string> keys = models::unknown_config_keys(config.text);
  std::string list = quoted_list(std::span(keys).first(std::min(keys.size(), most)));
  if (keys.size() > most) list += strfmt(" and %zu more", keys.size() - most);
  if (!list.empty())
    log::warn(74, config.path + " has keys that are not known here and not read: " + list +
                      ". If one of them changes what the model computes, another model is computed here");
  if (const std::string classes = quoted_list(models::other_architectures(config.text)); !classes.empty())
    log::warn(78, "\"architectures\" of " + config.path + " has " + classes +
                      ", which is no class of a language model that is known here: the model is read as a causal " +
                      "language model");
  if (const std::string classes = quoted_list(models::classes_beside_model(config.text)); !classes.empty())
    log::warn(79, "\"auto_map\" of " + config.path + " names " + classes +
                      ", of code beside the model, which is never run: what is computed is the model that its " +
                      "model_type names. transformers runs that code where it is told to trust it");
}

}  // namespace tessera::jobs
