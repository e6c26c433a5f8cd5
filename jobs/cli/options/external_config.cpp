// SPDX-License-Identifier: Apache-2.0
// Look-up of keys of other tools' files.
#include "jobs/cli/options/config_files.hpp"
#include "jobs/cli/options/other_tools.hpp"

namespace tessera::jobs {

namespace {

template <class Visit>
void for_each_row(const std::string& block, Visit visit) {
  for (const auto table : {accelerate_key_table(), deepspeed_key_table()})
    for (const ExternalKeySpec& spec : table)
      if (block == spec.block && !visit(spec)) return;
}

}  // namespace

const ExternalKeySpec* find_external_key(const std::string& block, const std::string& key) {
  const ExternalKeySpec* found = nullptr;
  for_each_row(block, [&](const ExternalKeySpec& spec) {
    if (is_named(spec.keys, key)) found = &spec;
    return found == nullptr;
  });
  return found;
}

std::vector<std::string> external_keys_of(const std::string& block) {
  std::vector<std::string> keys;
  for_each_row(block, [&keys](const ExternalKeySpec& spec) {
    for (std::string& key : split_words(spec.keys, ' '))
      if (!key.ends_with('*')) keys.push_back(std::move(key));
    return true;
  });
  return keys;
}

}  // namespace tessera::jobs
