// SPDX-License-Identifier: Apache-2.0
// Blocks are distributed over ranks and threads; damage is collected, not thrown.
#include "io/inspect/verify.hpp"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <filesystem>
#include <mutex>
#include <optional>

#include "io/checkpoint/blocks.hpp"
#include "io/checkpoint/checkpoint.hpp"
#include "io/checkpoint/directory.hpp"
#include "io/file/text_file.hpp"
#include "io/file/thread_tasks.hpp"
#include "io/file/work_progress.hpp"

namespace tessera::io {

namespace fs = std::filesystem;

namespace {

/// Damage that threads have found, in order of (file, block).
class Findings {
 public:
  void add(std::size_t file, std::uint64_t block, const std::string& line) {
    const std::lock_guard lock(mutex_);
    found_.push_back({file, block, line});
  }
  [[nodiscard]] std::string text() {
    std::ranges::sort(
        found_, [](const auto& a, const auto& b) { return std::tie(a.file, a.block) < std::tie(b.file, b.block); });
    std::string all;
    for (const auto& f : found_) all += f.line + "\n";
    return all;
  }

 private:
  struct Found {
    std::size_t file;
    std::uint64_t block;
    std::string line;
  };
  std::mutex mutex_;
  std::vector<Found> found_;
};

/// Why a file's blocks cannot be read; "" if they can.
std::string problem_of(const std::string& path, const StateFile& file) {
  std::error_code failed;
  const auto status = fs::symlink_status(path, failed);
  if (!fs::exists(status)) return "E109 " + path + " is missing: it holds " + describe_range(file, 0, file.bytes);
  if (!fs::is_regular_file(status)) return "E110 " + path + " is not a regular file";
  const std::uint64_t bytes = fs::file_size(path, failed);
  if (failed) return "E109 " + path + ": " + failed.message();
  if (bytes == file.bytes) return {};
  return strfmt("E109 %s has %lu bytes, the manifest says %lu", path.c_str(), bytes, file.bytes) +
         (bytes < file.bytes ? "; cut off is " + describe_range(file, bytes, file.bytes) : "");
}

struct Block {
  std::size_t file = 0;
  std::uint64_t index = 0;
};

/// This rank's share of the blocks of all readable files: adjacent blocks, equally many on each rank.
std::vector<Block> share(const Manifest& manifest, const std::vector<bool>& readable, int rank, int ranks) {
  std::vector<Block> all;
  for (std::size_t f = 0; f < manifest.files.size(); ++f)
    for (std::uint64_t b = 0; readable[f] && b < manifest.files[f].crcs.size(); ++b) all.push_back({f, b});
  const std::size_t first = all.size() * static_cast<std::size_t>(rank) / static_cast<std::size_t>(ranks);
  const std::size_t last = all.size() * (static_cast<std::size_t>(rank) + 1) / static_cast<std::size_t>(ranks);
  return {all.begin() + static_cast<std::ptrdiff_t>(first), all.begin() + static_cast<std::ptrdiff_t>(last)};
}

/// A thread's file.
struct OpenFile {
  std::optional<BlockReader> reader;
  std::optional<std::size_t> index;
};

std::uint64_t read_blocks(const std::string& directory, const Manifest& manifest, const std::vector<Block>& blocks,
                          int threads, Findings& findings) {
  std::atomic<std::uint64_t> bytes{0};
  std::vector<OpenFile> of_threads(static_cast<std::size_t>(std::max(1, threads)));
  WorkCounter progress("verify", blocks.size() * block_bytes);
  run_tasks(blocks.size(), of_threads, [&](OpenFile& open, std::size_t i) {
    progress.add(block_bytes);
    const StateFile& file = manifest.files[blocks[i].file];
    try {
      if (open.index != blocks[i].file) {
        open.index.reset();
        open.reader.emplace(directory + "/" + file.name, file);
        open.index = blocks[i].file;
      }
      bytes += bytes_of_block(file, blocks[i].index);
      (void)open.reader->block(blocks[i].index);
    } catch (const Error& error) { findings.add(blocks[i].file, blocks[i].index, error.line()); }
  });
  return bytes;
}

/// Rank 0, after the blocks: auxiliary files, the directory's name, unknown files, and what HDF5 finds.
void check_rest(const std::string& directory, const Manifest& manifest, bool blocks_good, Findings& findings) {
  const std::size_t last = manifest.files.size();
  for (const auto& a : manifest.auxiliary_files) {
    try {
      (void)read_auxiliary_file(directory, a);
    } catch (const Error& error) { findings.add(last, 0, error.line()); }
  }
  if (const std::string problem = name_problem(directory, manifest.step); !problem.empty())
    findings.add(last, 0, problem);
  std::error_code failed;
  for (fs::directory_iterator entry(directory, failed), end; !failed && entry != end; entry.increment(failed)) {
    const std::string name = entry->path().filename().string();
    if (name.ends_with(".h5") &&
        std::ranges::none_of(manifest.files, [&](const StateFile& f) { return f.name == name; }))
      findings.add(last, 1, "E134 " + directory + "/" + name + " is not in the manifest: it is of another checkpoint");
  }
  if (!blocks_good) return;
  try {
    check_headers(directory, manifest);
  } catch (const Error& error) { findings.add(last, 2, error.line()); }
}

}  // namespace

VerifyReport verify_checkpoint(World& world, const std::string& directory, int threads) {
  const auto start = std::chrono::steady_clock::now();
  const std::string manifest_path = directory + "/" + manifest_name;
  std::string text, readable_text;
  Findings findings;
  world.run_on_rank_0([&] {
    if (std::error_code failed; !fs::exists(manifest_path, failed))
      (void)read_manifest(directory);  // throws the reason
    text = read_text(manifest_path, max_manifest_bytes);
    const Manifest manifest = parse_manifest(text, manifest_path);
    for (std::size_t f = 0; f < manifest.files.size(); ++f) {
      const std::string problem = problem_of(directory + "/" + manifest.files[f].name, manifest.files[f]);
      readable_text += problem.empty() ? '1' : '0';
      if (!problem.empty()) findings.add(f, 0, problem);
    }
  });
  const Manifest manifest = parse_manifest(world.broadcast(text), manifest_path);
  readable_text = world.broadcast(readable_text);
  std::vector<bool> readable;
  for (const char c : readable_text) readable.push_back(c == '1');

  VerifyReport report;
  world.run_and_agree([&] {
    report.bytes =
        read_blocks(directory, manifest, share(manifest, readable, world.rank(), world.size()), threads, findings);
  });
  std::string mine = findings.text();
  const std::int64_t bad = world.sum(static_cast<std::int64_t>(std::ranges::count(mine, '\n')));
  world.run_on_rank_0([&] {
    check_rest(directory, manifest, bad == 0, findings);
    mine = findings.text();
  });
  for (const std::string& lines : world.gather(mine))
    for (std::size_t at = 0; at < lines.size(); at = lines.find('\n', at) + 1)
      report.damage.push_back(lines.substr(at, lines.find('\n', at) - at));
  report.num_damaged = world.sum(world.rank() == 0 ? static_cast<std::int64_t>(report.damage.size()) : 0);
  report.bytes = static_cast<std::uint64_t>(world.sum(static_cast<std::int64_t>(report.bytes)));
  report.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return report;
}

}  // namespace tessera::io
