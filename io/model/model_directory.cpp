// SPDX-License-Identifier: Apache-2.0
// A temporary directory that becomes the model's, or whose files are renamed into it.
#include "io/model/model_directory.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "io/file/file.hpp"
#include "io/file/text_file.hpp"

namespace tessera::io {

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
  if (holds_ == Holds::other_files) make_directories(directory_);
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
    for (const auto& a : auxiliary_files) write_text(temporary() + "/" + a.name, a.text);
    if (!files_.index.empty()) write_text(temporary() + "/" + index_file_name, files_.index);
    sync_directory(temporary());
    if (holds_ == Holds::model_alone) publish_directory(temporary(), directory_, backup);
    else move_in(auxiliary_files);
  });
  open_ = false;
}

void ModelDirectory::move_in(const std::vector<AuxiliaryFile>& auxiliary_files) const {
  const std::string config = directory_ + "/" + files_.config_name;
  if (::unlink(config.c_str()) != 0 && errno != ENOENT) throw system_error("write", config, errno);
  sync_directory(directory_);
  const auto move = [&](const std::string& name) {
    const std::string to = directory_ + "/" + name;
    if (::rename((temporary() + "/" + name).c_str(), to.c_str()) != 0) throw system_error("write", to, errno);
  };
  for (const PlannedFile& planned : files_.files) move(planned.name);
  for (const auto& a : auxiliary_files)
    if (a.name != files_.config_name) move(a.name);
  if (!files_.index.empty()) move(index_file_name);
  // A reader that finds model.safetensors looks at no index: an older model's must not be found.
  if (files_.files.front().name != adapter_file_name)
    remove_quietly(directory_ + "/" + (files_.index.empty() ? index_file_name : model_file_name));
  sync_directory(directory_);
  commit_rename(temporary() + "/" + files_.config_name, config);
  remove_tree_quietly(temporary());
}

}  // namespace tessera::io
