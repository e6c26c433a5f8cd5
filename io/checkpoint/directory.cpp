// SPDX-License-Identifier: Apache-2.0
#include "io/checkpoint/directory.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <filesystem>
#include <random>
#include <sstream>

#include "io/checkpoint/blocks.hpp"
#include "io/checkpoint/checkpoint.hpp"
#include "io/file/text_file.hpp"

namespace tessera::io {

namespace fs = std::filesystem;

namespace {
constexpr std::string_view checkpoint_prefix = "checkpoint-", unfinished_suffix = ".tmp", discarded_suffix = ".trash";
constexpr const char* verified_name = ".verified";
}  // namespace

std::string checkpoint_name(std::int64_t step) { return std::string(checkpoint_prefix) + std::to_string(step); }

std::optional<std::int64_t> checkpoint_step(const std::string& name) {
  if (!name.starts_with(checkpoint_prefix)) return std::nullopt;
  const std::string_view digits = std::string_view(name).substr(checkpoint_prefix.size());
  std::int64_t step = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), step);
  if (error != std::errc{} || end != digits.data() + digits.size() || step < 0 || checkpoint_name(step) != name)
    return std::nullopt;
  return step;
}

std::string name_problem(const std::string& directory, std::int64_t step) {
  const auto named = checkpoint_step(fs::path(directory + "/.").lexically_normal().parent_path().filename().string());
  if (!named || step == 0 || *named == step) return {};
  return strfmt(
      "E134 %s is named after step %ld, its manifest is of step %ld: it was renamed, or holds the files of another",
      directory.c_str(), *named, step);
}

bool is_damage(const std::string& line) {
  if (line.starts_with("cannot ") || line.starts_with("E132") || line.starts_with("E133")) return false;
  // Of another model, or without what a resume needs: E112, E113, E143 and E145 follow the directory's name.
  const auto says = [&line](const char* what) { return line.find(what) != std::string::npos; };
  return !says("E112 ") && !says("E113 ") && !says("E143 ") && !says("E145 ") && !says(" has no optimizer state");
}

std::vector<FoundCheckpoint> list_checkpoints(const std::string& directory) {
  std::vector<FoundCheckpoint> found;
  std::error_code error;
  for (fs::directory_iterator entry(directory, error), end; !error && entry != end; entry.increment(error)) {
    const auto step = checkpoint_step(entry->path().filename().string());
    std::error_code ignored;
    if (!step || !fs::is_directory(entry->symlink_status(ignored))) continue;
    FoundCheckpoint checkpoint{entry->path().string(), *step, {}};
    try {
      checkpoint.problem = name_problem(checkpoint.path, read_manifest(checkpoint.path).step);
    } catch (const Error& why) { checkpoint.problem = why.line(); }
    found.push_back(std::move(checkpoint));
  }
  std::ranges::sort(found, std::greater{}, &FoundCheckpoint::step);
  return found;
}

std::vector<std::pair<int, std::string>> list_versions(const std::string& directory) {
  std::vector<std::pair<int, std::string>> found;
  std::error_code error;
  for (fs::directory_iterator entry(directory, error), end; !error && entry != end; entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    const std::size_t dash = name.find('-');
    // Nine digits at most: a number that fits an int.
    if (name.starts_with('v') && dash >= 2 && dash <= 10 && name.find_first_not_of("0123456789", 1) == dash)
      found.emplace_back(std::stoi(name.substr(1, dash - 1)), entry->path().string());
  }
  std::ranges::sort(found, std::greater{});
  return found;
}

void remove_leftovers(const std::string& directory) noexcept {
  std::error_code error;
  std::vector<std::string> left;
  for (fs::directory_iterator entry(directory, error), end; !error && entry != end; entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    for (const std::string_view suffix : {unfinished_suffix, discarded_suffix})
      if (name.ends_with(suffix) && checkpoint_step(name.substr(0, name.size() - suffix.size())))
        left.push_back(entry->path().string());
  }
  for (const std::string& path : left) {
    const std::string name = path.substr(0, path.rfind('.'));
    if (path.ends_with(unfinished_suffix) && !fs::exists(name, error) &&
        fs::exists(name + std::string(discarded_suffix), error)) {
      try {
        (void)read_manifest(path);  // it is written last: all is there
        commit_rename(path, name);
      } catch (const Error&) {  // it is not complete
      }
    }
  }
  for (const std::string& path : left) remove_tree_quietly(path);
}

namespace {

/// Changes when any of the files is written to.
std::string identity(const std::string& directory, const Manifest& manifest) {
  std::vector<std::string> names{manifest_name};
  for (const auto& f : manifest.files) names.push_back(f.name);
  for (const auto& a : manifest.auxiliary_files) names.push_back(a.name);
  std::string text;
  for (const std::string& name : names) {
    struct stat s {};
    if (::lstat((directory + "/" + name).c_str(), &s) != 0) return {};
    text += strfmt("%lu:%lu:%ld.%09ld:%ld.%09ld;", s.st_ino, s.st_size, s.st_mtim.tv_sec, s.st_mtim.tv_nsec,
                   s.st_ctim.tv_sec, s.st_ctim.tv_nsec);
  }
  return text;
}

void read_through(const std::string& directory, const Manifest& manifest) {
  for (const auto& file : manifest.files) {
    BlockReader reader(directory + "/" + file.name, file);
    for (std::uint64_t b = 0; b < file.crcs.size(); ++b) (void)reader.block(b);
  }
  for (const auto& a : manifest.auxiliary_files) (void)read_auxiliary_file(directory, a);
}

}  // namespace

void Retention::recall(const std::string& directory) {
  if (recalled_ == directory) return;
  recalled_ = directory;
  std::string text;
  try {
    text = read_text(directory + "/" + verified_name, 1 << 20);
  } catch (const Error&) { return; }  // none, or not readable: checkpoints are read again
  std::istringstream lines(text);
  for (std::string name, identity; lines >> name >> identity;)
    if (checkpoint_step(name)) good_.emplace(directory + "/" + name, identity);
}

void Retention::written(const std::string& path) {
  recall(fs::path(path).parent_path().string());
  own_.insert(path);
  verified(path, true);
}

void Retention::verified(const std::string& path, bool good) {
  if (!good) {
    try {
      damaged_[path] = identity(path, read_manifest(path));
    } catch (const Error&) {  // state() says damaged
    }
    return;
  }
  good_[path] = identity(path, read_manifest(path));
  const std::string directory = fs::path(path).parent_path().string();
  std::string text;
  for (const auto& [known, files] : good_)
    if (fs::path(known).parent_path() == directory && fs::exists(known))
      text += fs::path(known).filename().string() + " " + files + "\n";
  try {
    write_text(directory + "/" + verified_name, text);
  } catch (const Error&) {  // a later run reads the checkpoints again
  }
}

Retention::State Retention::state(const std::string& path) {
  std::string now;
  try {
    now = identity(path, read_manifest(path));
  } catch (const Error&) { return State::damaged; }
  const auto is = [&](const auto& known) {
    const auto found = known.find(path);
    return found != known.end() && !now.empty() && found->second == now;
  };
  return is(good_) ? State::good : is(damaged_) ? State::damaged : State::unknown;
}

bool Retention::is_good(const std::string& path) {
  if (const State known = state(path); known != State::unknown) return known == State::good;
  bool good = true;
  try {
    read_through(path, read_manifest(path));
  } catch (const Error&) { good = false; }
  verified(path, good);
  return good;
}

namespace {

/// The checkpoints that a limit is about, and which of them is the best one.
struct Kept {
  std::vector<FoundCheckpoint> found;  // newest first
  std::optional<std::size_t> best;
};

Kept kept_in(const std::string& directory, const std::string& best) {
  Kept kept{list_checkpoints(directory), {}};
  std::erase_if(kept.found, [](const FoundCheckpoint& c) { return !c.problem.empty(); });
  for (std::size_t i = 0; i < kept.found.size() && !best.empty(); ++i)
    if (std::error_code ignored; fs::equivalent(kept.found[i].path, best, ignored)) kept.best = i;
  return kept;
}

/// How many others stay beside the best one.
int others_kept(const Kept& kept, bool best_is_good, int limit) {
  if (!best_is_good) return limit;
  return *kept.best == 0 ? limit - 1 : std::max(1, limit - 1);
}

}  // namespace

std::string Retention::unknown(const std::string& directory, const std::string& best) {
  recall(directory);
  const Kept kept = kept_in(directory, best);
  if (kept.found.size() <= static_cast<std::size_t>(limit_)) return {};
  if (kept.best && state(kept.found[*kept.best].path) == State::unknown) return kept.found[*kept.best].path;
  const bool keeps = kept.best && state(kept.found[*kept.best].path) == State::good;
  int counted = 0;
  for (std::size_t i = 0; i < kept.found.size() && counted < others_kept(kept, keeps, limit_); ++i) {
    if (keeps && i == *kept.best) continue;
    const State known = state(kept.found[i].path);
    if (known == State::unknown) return kept.found[i].path;
    counted += known == State::good ? 1 : 0;
  }
  return {};
}

void Retention::apply(const std::string& directory, const std::string& best) {
  recall(directory);
  const Kept kept = kept_in(directory, best);
  if (kept.found.size() <= static_cast<std::size_t>(limit_)) return;  // no need to read anything
  const bool keeps = kept.best && is_good(kept.found[*kept.best].path);
  const int others = others_kept(kept, keeps, limit_);
  int counted = 0;
  for (std::size_t i = 0; i < kept.found.size(); ++i) {
    if (keeps && i == *kept.best) continue;
    if (counted < others) counted += is_good(kept.found[i].path) ? 1 : 0;
    else if (removes_ == Removes::any || own_.contains(kept.found[i].path)) {
      if (before_removal_) before_removal_();
      remove_directory(kept.found[i].path);
    }
  }
}

DirectoryLock::DirectoryLock(const std::string& directory)
    : lock_(directory + "/.lock", "Wait for it, end it, or choose another --output_dir") {}

bool is_taken(const Error& error) { return error.line().find("E150 ") != std::string::npos; }

void check_owner(const std::string& directory, const std::string& owner) {
  if (owner.empty()) return;
  const std::string path = directory + "/.lock", now = read_text(path, 4096);
  if (now != owner)
    throw Error(ExitCode::data, "E150 another run has taken the directory: " + now.substr(0, now.find('\n')), path,
                "This one was cut off, or stopped for long: it changes nothing more there");
}

}  // namespace tessera::io
