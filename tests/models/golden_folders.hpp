// SPDX-License-Identifier: Apache-2.0
#pragma once
// Which golden files there are: what tests compare, and what docs/models.md says is compared, follow from the same
// list.

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

namespace tessera::test {

/// The folders of `golden` that have this file, by name.
inline std::vector<std::string> golden_folders(const std::string& golden, const std::string& file) {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(golden))
    if (std::filesystem::exists(entry.path() / file)) names.push_back(entry.path().filename().string());
  std::ranges::sort(names);
  return names;
}

}  // namespace tessera::test
