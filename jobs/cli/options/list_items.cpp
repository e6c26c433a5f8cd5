// SPDX-License-Identifier: Apache-2.0
// Only options of files look at the file system.
#include "jobs/cli/options/list_items.hpp"

#include <algorithm>

#include "io/data/data_files.hpp"

namespace tessera::jobs {

namespace {
bool names_files(const OptionSpec& spec) { return std::string_view(spec.values) == "FILE ..."; }
}  // namespace

std::vector<std::string> argument_items(const OptionSpec& spec, const std::string& text) {
  return names_files(spec) ? io::split_names(text) : split_words(text, ',');
}

std::vector<std::string> list_items(const OptionSpec& spec, const std::string& text) {
  if (!names_files(spec)) return split_list(text);
  if (io::names_something(text)) return {text};
  if (io::is_command(text)) return {text};
  const std::size_t command = std::min(text.find(" cmd:"), text.find(",cmd:"));
  std::vector<std::string> items;
  for (const std::string& word : split_words(text.substr(0, command), ' '))
    for (std::string& name : io::split_names(word)) items.push_back(std::move(name));
  if (command != std::string::npos) items.push_back(text.substr(command + 1));
  return items;
}

}  // namespace tessera::jobs
