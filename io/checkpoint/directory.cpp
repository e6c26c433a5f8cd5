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

#include "io/checkpoint/blocks.hpp"
#include "io/checkpoint/checkpoint.hpp"

namespace tessera::io {

namespace fs = std::filesystem;

namespace {
constexpr std::string_view prefix = "checkpoint-", unfinished = ".tmp", discarded = ".trash";
}

std::string checkpoint_name(std::int64_t step) { return std::string(prefix) + std::to_string(step); }

std::optional<std::int64_t> checkpoint_step(const std::string& name) {
  if (!name.starts_with(prefix)) return std::nullopt;
  const std::string_view digits = std::string_view(name).substr(prefix.size());
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
    for (const std::string_view suffix : {unfinished, discarded})
      if (name.ends_with(suffix) && checkpoint_step(name.substr(0, name.size() - suffix.size())))
        left.push_back(entry->path().string());
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

void Retention::written(const std::string& path) { known_[path] = identity(path, read_manifest(path)); }

bool Retention::verified(const std::string& path) {
  try {
    const Manifest manifest = read_manifest(path);
    const std::string now = identity(path, manifest);
    if (const auto known = known_.find(path); known != known_.end() && !now.empty() && known->second == now)
      return true;
    read_through(path, manifest);
    known_[path] = now;
    return true;
  } catch (const Error&) { return false; }
}

void Retention::apply(const std::string& directory, const std::string& best) {
  std::vector<FoundCheckpoint> found = list_checkpoints(directory);
  std::erase_if(found, [](const FoundCheckpoint& c) { return !c.problem.empty(); });
  if (found.size() <= static_cast<std::size_t>(limit_)) return;  // no need to read anything
  const auto is_best = [&](const FoundCheckpoint& c) {
    std::error_code ignored;
    return !best.empty() && fs::equivalent(c.path, best, ignored);
  };
  const bool keeps = std::ranges::any_of(found, is_best) && verified(best);
  const int others = !keeps ? limit_ : is_best(found.front()) ? limit_ - 1 : std::max(1, limit_ - 1);
  int counted = 0;
  for (const FoundCheckpoint& c : found) {
    if (keeps && is_best(c)) continue;
    if (counted < others) counted += verified(c.path) ? 1 : 0;
    else remove_directory(c.path);
  }
}

DirectoryLock::DirectoryLock(const std::string& directory) {
  const std::string path = directory + "/.lock";
  do descriptor_ = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666);
  while (descriptor_ < 0 && errno == EINTR);
  if (descriptor_ < 0) throw system_error("write", path, errno);
  if (::flock(descriptor_, LOCK_EX | LOCK_NB) != 0) {
    const int why = errno;
    char holder[256] = {};
    const ssize_t n = ::pread(descriptor_, holder, sizeof holder - 1, 0);
    const std::string who(holder, n > 0 ? static_cast<std::size_t>(n) : 0);
    if (why == EWOULDBLOCK)
      throw Error(ExitCode::data,
                  "E150 another run writes there: " + (who.empty() ? "unknown" : who.substr(0, who.find('\n'))), path,
                  "Wait for it, end it, or choose another --output_dir");
    return;  // no locks on this file system
  }
  held_ = true;
  char host[128] = "?";
  ::gethostname(host, sizeof host - 1);
  const std::string mine = strfmt("process %d on %s\n", static_cast<int>(::getpid()), host);
  if (::ftruncate(descriptor_, 0) != 0 || ::pwrite(descriptor_, mine.data(), mine.size(), 0) < 0)
    return;  // the lock is held; the text is only for messages
}

DirectoryLock::~DirectoryLock() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

}  // namespace tessera::io
