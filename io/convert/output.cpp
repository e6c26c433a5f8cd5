// SPDX-License-Identifier: Apache-2.0
#include "io/convert/output.hpp"

#include <sys/stat.h>
#include <sys/statvfs.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>

#include "io/checkpoint/manifest.hpp"
#include "io/file/file.hpp"
#include "io/model/auxiliary_files.hpp"
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

constexpr const char* wait_for_it = "Wait for it, end it, or choose another --out";

/// The line of OUTPUT.lock by which a later process knows OUTPUT.tmp as what this one left.
std::string line_of(const std::string& output) { return "makes " + fs::path(output).filename().string() + ".tmp"; }

void check_paths(const fs::path& in, const fs::path& out, const std::string& input, const std::string& output,
                 bool replace) {
  std::error_code failed;
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
}

/// Removes what a killed conversion has left, if its lock file proves that it is one's.
void clear_temporary(const std::string& temporary, bool proved) {
  std::error_code failed;
  if (!entry_exists(temporary)) return;
  const bool directory = fs::is_directory(fs::symlink_status(temporary, failed));
  if (directory && proved) return remove_tree_quietly(temporary);
  if (!directory || !is_leftover(temporary))
    throw Error(ExitCode::data,
                "E141 " + temporary + " is needed for the conversion, exists, and is not an interrupted conversion's",
                {}, "Move it, or choose another --out");
}

/// A file that its last holder removed after this process had opened it locks nothing: then the next one is tried.
std::unique_ptr<FileLock> lock_in_place(const std::string& path) {
  for (int tries = 1;; ++tries) {
    auto lock = std::make_unique<FileLock>(path, wait_for_it);
    if (!lock->is_in_place() && tries < 1000) continue;  // in the end: a file system whose numbers of files change
    if (!lock->held() && !lock->created())
      throw Error(ExitCode::data,
                  "E150 another process writes there, or was killed: " +
                      lock->before().substr(0, lock->before().find('\n')) + "; the file system has no locks",
                  path, "If that process has ended, remove the file");
    return lock;
  }
}

/// The path without links and dots, and without a slash at its end.
fs::path canonical_path(const std::string& path) {
  std::error_code failed;
  return fs::weakly_canonical(fs::absolute(without_slash(path)), failed);
}

}  // namespace

std::string output_path(const std::string& path) {
  return path.empty() ? path : without_slash(fs::absolute(path).lexically_normal().string());
}

std::string without_slash(std::string path) {
  while (path.size() > 1 && path.back() == '/') path.pop_back();
  return path;
}

OutputLock::OutputLock(const std::string& input, const std::string& output, bool replace) {
  const fs::path in = canonical_path(input), out = canonical_path(output);
  check_paths(in, out, input, output, replace);
  make_directories(out.parent_path().string());
  path_ = out.string() + ".lock";
  lock_ = lock_in_place(path_);
  try {
    check_paths(in, out, input, output, replace);
    clear_temporary(out.string() + ".tmp", lock_->before().find(line_of(out.string()) + "\n") != std::string::npos);
    if (replace && exists(output + "/.lock")) replaced_ = std::make_unique<FileLock>(output + "/.lock", wait_for_it);
    lock_->add_line(line_of(out.string()));
  } catch (...) {
    remove_quietly(path_);
    throw;
  }
}

OutputLock::~OutputLock() {
  const std::string temporary = path_.substr(0, path_.size() - std::string_view("lock").size()) + "tmp";
  if (lock_->is_in_place() && !entry_exists(temporary)) remove_quietly(path_);  // else it proves whose that is
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

}  // namespace tessera::io
