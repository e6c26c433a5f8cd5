#pragma once
// SPDX-License-Identifier: Apache-2.0
// What the rules of sources and those of pages share: kinds of files, and their lines.

#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <fstream>
#include <functional>
#include <initializer_list>
#include <string>

namespace tessera::layering {

inline bool ends_with_any(const std::string& path, std::initializer_list<const char*> endings) {
  return std::any_of(endings.begin(), endings.end(), [&](const char* e) { return path.ends_with(e); });
}
inline bool is_header(const std::string& path) { return ends_with_any(path, {".hpp", ".h", ".cuh"}); }
inline bool is_source(const std::string& path) { return is_header(path) || ends_with_any(path, {".cpp", ".cu"}); }

inline void for_each_line(const std::filesystem::path& file,
                          const std::function<void(int, const std::string&)>& visit) {
  std::ifstream in(file);
  std::string line;
  for (int number = 1; std::getline(in, line); ++number) visit(number, line);
}

inline std::string at(const std::string& file, int line, const std::string& what) {
  return file + ":" + std::to_string(line) + ": " + what;
}

inline constexpr std::size_t most_columns = 120;
/// Characters of UTF-8.
inline std::size_t columns(const std::string& line) {
  return static_cast<std::size_t>(std::ranges::count_if(line, [](char c) { return (c & 0xC0) != 0x80; }));
}

}  // namespace tessera::layering
