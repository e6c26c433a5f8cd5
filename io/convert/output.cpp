// SPDX-License-Identifier: Apache-2.0
#include "io/convert/output.hpp"

#include <sys/stat.h>
#include <sys/statvfs.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>

#include "io/checkpoint/manifest.hpp"
#include "io/file/file.hpp"
#include "io/file/text_file.hpp"
#include "io/model/model_files.hpp"

namespace tessera::io {

namespace fs = std::filesystem;

namespace {

bool is_output_name(const std::string& name) {
  const auto& auxiliary = auxiliary_file_names();
  if (name == "config.json" || std::ranges::find(auxiliary, name) != auxiliary.end()) return true;
  if (name == adapter_file_name || name == adapter_config_name) return true;
  return name == manifest_name || name == std::string(manifest_name) + ".tmp" || name == index_file_name ||
         (name.starts_with("model") && name.ends_with(".safetensors")) ||
         (name.starts_with("state-") && name.ends_with(".h5"));
}

/// Every file in it has a name that conversions give.
bool is_leftover(const std::string& directory) {
  std::error_code failed;
  for (fs::directory_iterator entry(directory, failed), end; !failed && entry != end; entry.increment(failed))
    if (!fs::is_regular_file(entry->symlink_status()) || !is_output_name(entry->path().filename().string()))
      return false;
  return !failed;
}

bool entry_exists(const std::string& path) {
  struct stat there {};
  return ::lstat(path.c_str(), &there) == 0;
}

/// `inner` is `outer` or inside it.
bool contains(const fs::path& outer, const fs::path& inner) {
  auto a = outer.begin(), b = inner.begin();
  while (a != outer.end() && b != inner.end() && *a == *b) ++a, ++b;
  return a == outer.end();
}

std::string gigabytes(std::uint64_t bytes) {
  return bytes < 1'000'000'000 ? strfmt("%.1f MB", static_cast<double>(bytes) / 1e6)
                               : strfmt("%.1f GB", static_cast<double>(bytes) / 1e9);
}

}  // namespace

void check_output(const std::string& input, const std::string& output, bool replace) {
  std::error_code failed;
  const fs::path in = fs::weakly_canonical(fs::absolute(input), failed),
                 out = fs::weakly_canonical(fs::absolute(output), failed);
  if (contains(in, out) || contains(out, in))
    throw Error(ExitCode::data,
                "E142 " + output +
                    (in == out           ? " is the input itself"
                     : contains(in, out) ? " is inside the input " + input
                                         : " holds the input " + input),
                {}, "Choose another --out");
  if (entry_exists(output) && !replace)
    throw Error(ExitCode::data, "E141 " + output + " exists", {}, "Choose another --out, or replace it with --force");
  if (entry_exists(output) && !fs::is_directory(fs::symlink_status(output, failed)))
    throw Error(ExitCode::data, "E141 " + output + " is not a directory", {}, "Choose another --out");
  const std::string temporary = output + ".tmp";
  if (entry_exists(temporary) && (!fs::is_directory(fs::symlink_status(temporary, failed)) || !is_leftover(temporary)))
    throw Error(ExitCode::data,
                "E141 " + temporary + " is needed for the conversion, exists, and is not an interrupted conversion's",
                {}, "Move it, or choose another --out");
  make_directories(directory_of(output));
}

void check_space(const std::string& output, std::uint64_t bytes) {
  const std::string parent = directory_of(output);
  struct statvfs disk {};
  if (::statvfs(parent.c_str(), &disk) != 0) throw system_error("write", parent, errno);
  const std::uint64_t free_bytes = static_cast<std::uint64_t>(disk.f_bavail) * disk.f_frsize;
  if (free_bytes < bytes)
    throw Error(ExitCode::data,
                "E140 no space: need " + gigabytes(bytes) + ", " + gigabytes(free_bytes) + " free on " + parent, {},
                "Free some space, or write elsewhere");
}

std::string backup_path(const std::string& path) {
  std::string name = path + ".old";
  for (int n = 2; entry_exists(name); ++n) name = path + ".old." + std::to_string(n);
  return name;
}

std::vector<AuxiliaryFile> read_model_auxiliary_files(const std::string& directory) {
  std::vector<AuxiliaryFile> result = {{"config.json", read_text(directory + "/config.json")}};
  for (AuxiliaryFile& a : read_auxiliary_files(directory)) result.push_back(std::move(a));
  return result;
}

}  // namespace tessera::io
