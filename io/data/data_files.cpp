// SPDX-License-Identifier: Apache-2.0
// Expands directories and patterns.

#include "io/data/data_files.hpp"

#include <glob.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <filesystem>
#include <map>

#include "runtime/base/error.hpp"
#include "runtime/base/rng.hpp"

namespace tessera::io {

namespace {

namespace fs = std::filesystem;

template <class T>
std::optional<T> number_of(const std::string& text) {
  T value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || !(value > T{})) return std::nullopt;
  return value;
}

/// Splits #ROWS or :SHARE from a name.
DataFile parse_name(const std::string& name) {
  DataFile file{.path = name, .rows = {}, .share = {}};
  if (is_command(name) || exists(fs::symlink_status(name))) return file;
  const std::size_t at = name.find_last_of("#:");
  if (at == std::string::npos || at == 0) return file;
  const std::string number = name.substr(at + 1);
  if (name[at] == ':' && number.find_first_not_of("0123456789.eE+-") != std::string::npos) return file;
  file.path = name.substr(0, at);
  if (name[at] == '#') file.rows = number_of<std::int64_t>(number);
  else file.share = number_of<double>(number);
  if (!file.selects() || (file.share && !std::isfinite(*file.share)))
    throw Error(ExitCode::data, "\"" + number + "\" is not a positive number" + (name[at] == '#' ? " of rows" : ""),
                name, "Write FILE#500 for 500 rows, or FILE:0.3 for 30 % of the rows");
  return file;
}

bool is_pattern(const std::string& path) { return path.find_first_of("*?[") != std::string::npos; }

std::vector<std::string> files_matching(const std::string& pattern, std::vector<LeftOut>& left_out) {
  if (pattern.find("**") != std::string::npos)
    throw Error(ExitCode::data, "** is not known in patterns", pattern,
                "Give the directory: it is read with the directories in it");
  glob_t matches{};
  const int result = ::glob(pattern.c_str(), 0, nullptr, &matches);  // sorted by name
  std::vector<std::string> found;
  std::error_code ignored;
  for (std::size_t i = 0; result == 0 && i < matches.gl_pathc; ++i) {
    const std::string path = matches.gl_pathv[i];
    if (fs::is_regular_file(path, ignored)) found.push_back(path);
    else
      left_out.push_back({path, fs::is_directory(path, ignored) ? "a directory; to have it read, name it" : "no file"});
  }
  ::globfree(&matches);
  std::sort(found.begin(), found.end());
  if (found.empty()) throw Error(ExitCode::data, "no file matches the pattern", pattern, "Give --dataset FILE");
  return found;
}

/// Megatron names its files by what both have in common, PREFIX.bin and PREFIX.idx: any of the three is PREFIX.bin.
std::string token_file_of(const std::string& path) {
  std::error_code ignored;
  if (is_command(path)) return path;
  if (path.ends_with(".idx")) return path.substr(0, path.size() - 4) + ".bin";
  return !fs::exists(path, ignored) && fs::exists(path + ".idx", ignored) ? path + ".bin" : path;
}

/// The files, where Megatron's are named by their tokens. An index beside whose tokens are given too is left out.
std::vector<DataFile> token_files_once(const std::vector<DataFile>& given) {
  const auto key_of = [](const std::string& path) { return fs::path(path).lexically_normal().string(); };
  std::map<std::string, const DataFile*> others;  // that are not an index
  for (const DataFile& file : given)
    if (!file.path.ends_with(".idx")) others.emplace(key_of(token_file_of(file.path)), &file);
  std::vector<DataFile> files;
  for (const DataFile& file : given) {
    const std::string path = token_file_of(file.path);
    const auto tokens = file.path.ends_with(".idx") ? others.find(key_of(path)) : others.end();
    if (tokens == others.end()) {
      files.push_back(file);
      files.back().path = path;
    } else if (tokens->second->rows != file.rows || tokens->second->share != file.share) {
      throw Error(ExitCode::data, "the file and its index " + file.path + " are given with different numbers of rows",
                  path, "Give one of the two");
    }
  }
  return files;
}

}  // namespace

bool is_command(const std::string& name) { return name.starts_with("cmd:"); }

std::int64_t DataFile::wanted(std::int64_t all) const {
  constexpr double most = 1000;
  const double times = rows    ? static_cast<double>(*rows) / static_cast<double>(std::max<std::int64_t>(all, 1))
                       : share ? *share
                               : 1.0;
  if (times > most)
    throw Error(ExitCode::data,
                strfmt("each of its %ld rows would be there %.10g times: %.0f are allowed", all, times, most), path,
                "Ask for fewer rows, and repeat all data with --num_train_epochs");
  if (rows) return *rows;
  return share ? std::llround(*share * static_cast<double>(all)) : all;
}

std::int64_t copies_of(std::int64_t index, std::int64_t all, std::int64_t wanted, std::uint64_t seed) {
  const auto at =
      static_cast<std::int64_t>(permute(seed, static_cast<std::uint64_t>(all), static_cast<std::uint64_t>(index)));
  return wanted / all + (at < wanted % all ? 1 : 0);
}

std::string without_selection(const std::string& name) { return parse_name(name).path; }

bool names_something(const std::string& name) {
  std::string path = name;
  std::error_code ignored;
  if (fs::exists(path, ignored)) return true;
  const std::size_t at = name.find_last_of("#:");
  if (at != std::string::npos && name.find_first_not_of("0123456789.eE+-", at + 1) == std::string::npos)
    path = name.substr(0, at);
  if (fs::exists(path, ignored) || fs::exists(path + ".idx", ignored)) return true;
  glob_t matches{};
  const bool found = is_pattern(path) && ::glob(path.c_str(), GLOB_NOSORT, nullptr, &matches) == 0;
  ::globfree(&matches);
  return found;
}

std::vector<std::string> split_names(const std::string& list) {
  if (is_command(list)) return {list};
  for (std::size_t at = list.find(','); at != std::string::npos; at = list.find(',', at + 1)) {
    const std::string rest = list.substr(std::min(list.find_first_not_of(' ', at + 1), list.size()));
    if (!is_command(rest)) continue;
    std::vector<std::string> names = split_names(list.substr(0, at));
    names.push_back(rest);
    return names;
  }
  std::vector<std::string> parts;
  for (std::size_t at = 0; at <= list.size();) {
    const std::size_t end = std::min(list.find(',', at), list.size());
    parts.push_back(list.substr(at, end - at));
    at = end + 1;
  }
  std::vector<std::string> names;
  for (std::size_t first = 0; first < parts.size();) {
    std::size_t last = parts.size();
    std::string name;
    for (; last > first; --last) {
      name = parts[first];
      for (std::size_t i = first + 1; i < last; ++i) name += "," + parts[i];
      if (last == first + 1 || names_something(name)) break;
    }
    if (!name.empty()) names.push_back(name);
    first = last;
  }
  return names;
}

std::vector<DataFile> data_files(const std::vector<std::string>& names, std::vector<LeftOut>* left_out) {
  std::vector<DataFile> files;
  std::vector<LeftOut> unread;
  for (const std::string& name : names) {
    const DataFile given = parse_name(name);
    std::error_code ignored;
    std::vector<std::string> paths = {given.path};
    if (is_command(name)) {
      if (name.find_first_not_of(" \t\n", std::string_view("cmd:").size()) == std::string::npos)
        throw Error(ExitCode::data, "cmd: has no command", name, "Write 'cmd:COMMAND', as for /bin/sh");
      DataFile& file = files.emplace_back(given);
      file.command = name.substr(std::string_view("cmd:").size());
      std::ranges::replace(file.path, '\n', ' ');
      continue;
    }
    if (fs::is_directory(given.path, ignored)) paths = files_in(given.path, unread);
    else if (!fs::exists(given.path, ignored) && is_pattern(given.path)) paths = files_matching(given.path, unread);
    for (std::string& path : paths) files.push_back({std::move(path), given.rows, given.share});
  }
  if (left_out != nullptr) left_out->insert(left_out->end(), unread.begin(), unread.end());
  return token_files_once(files);
}

}  // namespace tessera::io
