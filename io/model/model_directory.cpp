// SPDX-License-Identifier: Apache-2.0
// A temporary directory that becomes the model's, or whose files are put in place of an older model's.
#include "io/model/model_directory.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <sstream>

#include "io/file/file.hpp"
#include "io/file/new_directory.hpp"
#include "io/file/text_file.hpp"

namespace tessera::io {

namespace {

constexpr const char* list_name = ".files";  // in model.new: its files' names, the config last

/// Makes `to` another name of `from`, in the place of an older file; renames it where the file system has no such
/// names.
void replace_file(const std::string& from, const std::string& directory, const std::string& name) {
  const std::string to = directory + "/" + name, base = name.substr(name.rfind('/') + 1);  // npos + 1 is 0
  const std::string next = directory_of(to) + "/." + base + ".new";
  if (base != name) make_directories(directory_of(to));
  remove_quietly(next);
  if (::link(from.c_str(), next.c_str()) == 0) {
    const int failed = ::rename(next.c_str(), to.c_str()) != 0 ? errno : 0;
    remove_quietly(next);  // where both were names of one file already, the rename leaves it
    if (failed != 0) throw system_error("write", to, failed);
    return;
  }
  if (errno != EPERM && errno != EOPNOTSUPP && errno != ENOSYS && errno != EMLINK && errno != EINVAL)
    throw system_error("write", next, errno);
  if (::rename(from.c_str(), to.c_str()) != 0) throw system_error("write", to, errno);
}

/// Whether the file in the directory has to be replaced: weights always, texts if they differ.
bool changes(const std::string& from, const std::string& to) {
  if (!exists(to) || from.ends_with(".safetensors")) return true;
  try {
    return read_text(from) != read_text(to);
  } catch (const Error&) { return true; }  // too large to compare
}

std::vector<std::string> listed_names(const std::string& from) {
  std::vector<std::string> names;
  std::istringstream lines(read_text(from + "/" + list_name));
  for (std::string name; std::getline(lines, name);) names.push_back(name);
  return names;
}

void put_files_in_place(const std::string& from, const std::string& directory) {
  const std::vector<std::string> names = listed_names(from);
  std::vector<std::string> changed;
  if (names.empty()) throw Error(ExitCode::data, from + "/" + list_name + " names no file");
  const std::string& config = names.back();
  const std::string there = directory + "/" + config;
  for (const std::string& name : names)  // one that is not there has been moved before an interruption
    if (exists(from + "/" + name) && changes(from + "/" + name, directory + "/" + name)) changed.push_back(name);
  // A reader that finds model.safetensors looks at no index: an older model's must not be found.
  const bool indexed = std::ranges::find(names, index_file_name) != names.end();
  const std::string other = directory + "/" + (indexed ? model_file_name : index_file_name);
  const bool replaces_other = config != adapter_config_name && exists(other);
  if (changed.size() > 1 || replaces_other) {
    if (::unlink(there.c_str()) != 0 && errno != ENOENT) throw system_error("write", there, errno);
    sync_directory(directory);
    if (exists(from + "/" + config) && std::ranges::find(changed, config) == changed.end()) changed.push_back(config);
  }
  for (const std::string& name : changed)
    if (name != config) replace_file(from + "/" + name, directory, name);
  if (replaces_other && ::unlink(other.c_str()) != 0 && errno != ENOENT) throw system_error("remove", other, errno);
  sync_directory(directory);
  if (!changed.empty() && changed.back() == config) replace_file(from + "/" + config, directory, config);
  sync_directory(directory);
}

}  // namespace

void put_model_in_place(const std::string& directory) {
  const std::string from = directory + "/" + new_model_name, done = directory + "/model.tmp";
  if (!exists(from)) return;
  try {
    put_files_in_place(from, directory);
  } catch (const Error& error) {
    throw Error(error.code(), error.line(), "all of the new model is in " + from,
                "Start the run again, which completes it, or use the files there");
  }
  remove_tree_quietly(done);
  commit_rename(from, done);  // what is removed in part must not be taken for a model
  remove_tree_quietly(done);
}

std::string directory_of_model(const std::string& directory) {
  std::string beside = directory + "/" + new_model_name;
  if (!exists(beside + "/config.json") || exists(directory + "/config.json")) return directory;
  for (const std::string& name : listed_names(beside))
    if (!exists(beside + "/" + name))
      throw Error(ExitCode::data, "the files of a new model were being put in place when a run was interrupted",
                  directory, "Start that run again, which completes it");
  return beside;
}

ModelDirectory::ModelDirectory(World& world, std::string directory, const ModelFiles& files, Holds holds)
    : world_(world), directory_(std::move(directory)), files_(files), holds_(holds) {
  try {
    world_.run_on_rank_0([&] { make(); });
  } catch (...) {
    if (world_.rank() == 0) remove_tree_quietly(temporary());
    throw;
  }
}

ModelDirectory::~ModelDirectory() {
  if (open_ && world_.rank() == 0) remove_tree_quietly(temporary());
}

void ModelDirectory::make() const {
  if (holds_ == Holds::other_files) {
    make_directories(directory_);
    put_model_in_place(directory_);  // of a run that was interrupted
  }
  remove_tree_quietly(temporary());
  if (::mkdir(temporary().c_str(), 0777) != 0) throw system_error("make the directory", temporary(), errno);
  for (const PlannedFile& planned : files_.files) {
    File file = File::create(temporary() + "/" + planned.name);
    file.allocate(planned.plan.file_bytes);
    file.close();
  }
}

std::vector<std::string> ModelDirectory::paths() const {
  std::vector<std::string> paths;
  for (const PlannedFile& planned : files_.files) paths.push_back(temporary() + "/" + planned.name);
  return paths;
}

void ModelDirectory::commit(const std::vector<AuxiliaryFile>& auxiliary_files, const std::string& backup) {
  world_.run_on_rank_0([&] {
    for (const auto& a : auxiliary_files) write_auxiliary_file(temporary(), a);
    if (!files_.index.empty()) write_text(temporary() + "/" + index_file_name, files_.index);
    sync_directory(temporary());
    if (holds_ == Holds::other_files) move_in(auxiliary_files);
    else if (backup.empty()) publish_new_directory(temporary(), directory_);
    else publish_directory(temporary(), directory_, backup);
  });
  open_ = false;
}

void ModelDirectory::move_in(const std::vector<AuxiliaryFile>& auxiliary_files) const {
  std::string names;
  for (const PlannedFile& planned : files_.files) names += planned.name + '\n';
  for (const auto& a : auxiliary_files)
    if (a.name != files_.config_name) names += a.name + '\n';
  if (!files_.index.empty()) names += std::string(index_file_name) + '\n';
  write_text(temporary() + "/" + list_name, names + files_.config_name + '\n');
  commit_rename(temporary(), directory_ + "/" + new_model_name);
  put_model_in_place(directory_);
}

}  // namespace tessera::io
