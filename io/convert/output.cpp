// Names and directories of a conversion's output.
#include "io/convert/output.hpp"

#include <sys/stat.h>
#include <sys/statvfs.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>

#include "io/checkpoint/directory.hpp"
#include "io/file/text_file.hpp"
#include "io/model/auxiliary_files.hpp"

namespace tessera::io {

namespace fs = std::filesystem;

namespace {

bool is_ours(const std::string& name) {
  const auto& companions = auxiliary_file_names();
  if (name == "config.json" || std::ranges::find(companions, name) != companions.end()) return true;
  return name == manifest_name || name == std::string(manifest_name) + ".tmp" || name == index_file_name ||
         (name.starts_with("model") && name.ends_with(".safetensors")) ||
         (name.starts_with("state-") && name.ends_with(".h5"));
}

/// Nothing but files as conversions name them.
bool is_leftover(const std::string& directory) {
  std::error_code failed;
  for (fs::directory_iterator entry(directory, failed), end; !failed && entry != end; entry.increment(failed))
    if (!fs::is_regular_file(entry->symlink_status()) || !is_ours(entry->path().filename().string())) return false;
  return !failed;
}

std::string directory_above(const std::string& path) {
  const std::string parent = fs::path(path).parent_path().string();
  return parent.empty() ? "." : parent;
}

bool entry_exists(const std::string& path) {
  struct stat there {};
  return ::lstat(path.c_str(), &there) == 0;
}

/// `inner` is `outer` or below it.
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
    throw Error(ExitCode::data, "E141 " + output + " is no directory", {}, "Choose another --out");
  const std::string temporary = output + ".tmp";
  if (entry_exists(temporary) && (!fs::is_directory(fs::symlink_status(temporary, failed)) || !is_leftover(temporary)))
    throw Error(ExitCode::data,
                "E141 " + temporary + ", which is needed meanwhile, exists and is not what a conversion left", {},
                "Move it, or choose another --out");
  make_directories(directory_above(output));
}

void check_space(const std::string& output, std::uint64_t bytes) {
  const std::string parent = directory_above(output);
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

ModelDirectory::ModelDirectory(World& world, std::string directory, const ModelFiles& files)
    : world_(world), directory_(std::move(directory)), files_(files) {
  try {
    world_.run_and_agree([&] {
      if (world_.rank() != 0) return;
      remove_tree_quietly(temporary());
      if (::mkdir(temporary().c_str(), 0777) != 0) throw system_error("make the directory", temporary(), errno);
      for (const PlannedFile& planned : files_.files) {
        File file = File::create(temporary() + "/" + planned.name);
        file.allocate(planned.plan.file_bytes);
        file.close();
      }
    });
  } catch (...) {
    if (world_.rank() == 0) remove_tree_quietly(temporary());
    throw;
  }
}

ModelDirectory::~ModelDirectory() {
  if (open_ && world_.rank() == 0) remove_tree_quietly(temporary());
}

std::vector<std::string> ModelDirectory::paths() const {
  std::vector<std::string> paths;
  for (const PlannedFile& planned : files_.files) paths.push_back(temporary() + "/" + planned.name);
  return paths;
}

void ModelDirectory::commit(const std::vector<AuxiliaryFile>& auxiliary_files, const std::string& aside) {
  world_.run_and_agree([&] {
    if (world_.rank() == 0) publish(auxiliary_files, aside);
  });
  open_ = false;
}

void ModelDirectory::publish(const std::vector<AuxiliaryFile>& auxiliary_files, const std::string& aside) const {
  for (const auto& a : auxiliary_files) write_text(temporary() + "/" + a.name, a.text);
  if (!files_.index.empty()) write_text(temporary() + "/" + index_file_name, files_.index);
  sync_directory(temporary());
  publish_directory(temporary(), directory_, aside);
}

}  // namespace tessera::io
