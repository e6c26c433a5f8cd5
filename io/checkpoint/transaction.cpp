// SPDX-License-Identifier: Apache-2.0
// The protocol of a save (docs/checkpoints.md): temporary directory, layout, data from all ranks, manifest, one rename.
#include "io/checkpoint/transaction.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "io/checkpoint/directory.hpp"
#include "io/file/crc32c.hpp"
#include "io/file/new_directory.hpp"

namespace tessera::io {

namespace {

std::span<const std::byte> bytes_of(const std::string& text) { return std::as_bytes(std::span(text)); }

enum class Durable : unsigned char { now, later };

void write_file(const std::string& path, const std::string& text, Durable durable) {
  File file = File::create(path);
  file.write_at(0, bytes_of(text));
  if (durable == Durable::now) file.sync();
  file.close();
}

void write_manifest(const std::string& path, const std::string& text) {
  write_file(path + ".tmp", text, Durable::now);
  commit_rename(path + ".tmp", path);
}

/// The checksums of bytes outside data sets, block by block.
void add_checksums(std::uint32_t file, std::uint64_t offset, std::span<const std::byte> bytes,
                   std::vector<RangeChecksum>& checksums) {
  while (!bytes.empty()) {
    const auto n = static_cast<std::size_t>(std::min<std::uint64_t>(bytes.size(), block_bytes - offset % block_bytes));
    checksums.push_back({file, crc32c(0, bytes.first(n)), offset, n});
    bytes = bytes.subspan(n);
    offset += n;
  }
}

/// Rank 0's layout as bytes for the other ranks: sizes and offsets in order of files and data sets.
std::string packed(const std::vector<StateFile>& files) {
  std::string text;
  const auto put = [&](std::uint64_t v) { text.append(reinterpret_cast<const char*>(&v), sizeof v); };
  for (const StateFile& f : files) {
    put(f.bytes);
    for (const auto& d : f.datasets) (put(d.offset), put(d.bytes));
  }
  return text;
}

void unpack(const std::string& text, std::vector<StateFile>& files) {
  std::size_t at = 0;
  const auto get = [&] {
    std::uint64_t v = 0;
    TESSERA_ASSERT(at + sizeof v <= text.size(), "a short layout");
    std::memcpy(&v, text.data() + at, sizeof v);
    at += sizeof v;
    return v;
  };
  for (StateFile& f : files) {
    f.bytes = get();
    for (auto& d : f.datasets) {
      d.offset = get();
      d.bytes = get();
    }
  }
}

}  // namespace

std::vector<std::string> CheckpointTransaction::paths() const {
  std::vector<std::string> paths;
  for (const StateFile& f : spec_.files) paths.push_back(temporary() + "/" + f.name);
  return paths;
}

CheckpointTransaction::CheckpointTransaction(World& world, Spec spec) : world_(world), spec_(std::move(spec)) {
  try {
    world_.run_on_rank_0([&] { lay_out(); });
  } catch (...) {
    if (world_.rank() == 0) remove_temporary();
    throw;
  }
  unpack(world_.broadcast(packed(spec_.files)), spec_.files);
  for (StateFile& f : spec_.files) std::ranges::sort(f.datasets, {}, &Hdf5Dataset::offset);
}

CheckpointTransaction::~CheckpointTransaction() {
  if (open_ && world_.rank() == 0) remove_temporary();
}

void CheckpointTransaction::remove_temporary() const noexcept {
  try {
    if (spec_.check_owner) spec_.check_owner();
  } catch (const std::exception&) { return; }  // it may be another run's by now
  remove_tree_quietly(temporary());
}

/// Checks the owner once more: a rank that was stopped before the directory was made may go on long after another run
/// has removed what this one left, and would leave it again.
void CheckpointTransaction::make_temporary() const {
  if (::mkdir(temporary().c_str(), 0777) != 0) throw system_error("make the directory", temporary(), errno);
  try {
    if (spec_.check_owner) spec_.check_owner();
  } catch (...) {
    ::rmdir(temporary().c_str());  // only if it is as this call has made it
    throw;
  }
}

void CheckpointTransaction::lay_out() {
  if (spec_.check_owner) spec_.check_owner();
  remove_tree_quietly(temporary());
  make_temporary();
  for (std::size_t f = 0; f < spec_.files.size(); ++f) {
    StateFile& file = spec_.files[f];
    const Hdf5Layout layout = lay_out_hdf5(file.datasets,
                                           {{"format", "tessera-checkpoint", 0},
                                            {"version", {}, 1},
                                            {"step", {}, spec_.step},
                                            {"file", {}, static_cast<std::int64_t>(f + 1)},
                                            {"files", {}, static_cast<std::int64_t>(spec_.files.size())}},
                                           spec_.alignment);
    file.bytes = layout.file_bytes;
    File out = File::create(temporary() + "/" + file.name);
    out.allocate(file.bytes);
    for (const auto& range : layout.metadata) {
      const auto used = range.bytes.find_last_not_of('\0');
      if (used != std::string::npos) out.write_at(range.offset, bytes_of(range.bytes).first(used + 1));
      add_checksums(static_cast<std::uint32_t>(f), range.offset, bytes_of(range.bytes), headers_);
    }
    out.close();
  }
  for (const auto& a : spec_.auxiliary_files) {
    if (a.name.find('/') != std::string::npos) make_directories(directory_of(temporary() + "/" + a.name));
    write_file(temporary() + "/" + a.name, a.text, Durable::later);
  }
}

void CheckpointTransaction::sync_layout() {
  if (world_.rank() != 0 || synced_) return;
  for (const std::string& path : paths()) File::open_to_write(path).sync();
  for (const auto& a : spec_.auxiliary_files) {
    const std::string path = temporary() + "/" + a.name;
    File::open_to_write(path).sync();
    if (a.name.find('/') != std::string::npos) sync_directory(directory_of(path));
  }
  synced_ = true;  // publish() syncs the directory
}

void CheckpointTransaction::commit(const std::vector<RangeChecksum>& checksums, const std::string& training,
                                   const std::string& run_metadata) {
  const std::vector<std::string> all = world_.gather(pack_checksums(checksums));
  world_.run_on_rank_0([&] {
    sync_layout();
    std::vector<RangeChecksum> joined = unpack_checksums(all);
    joined.insert(joined.end(), headers_.begin(), headers_.end());
    join_checksums(std::move(joined), spec_.files);
    Manifest manifest{.step = spec_.step,
                      .optimizer = spec_.optimizer,
                      .frozen = spec_.frozen,
                      .base = spec_.base,
                      .files = spec_.files,
                      .auxiliary_files = {},
                      .training = training,
                      .run_metadata = run_metadata};
    for (const auto& a : spec_.auxiliary_files)
      manifest.auxiliary_files.push_back({a.name, a.text.size(), crc32c(0, bytes_of(a.text))});
    publish(manifest_text(manifest));
  });
  open_ = false;
}

void CheckpointTransaction::publish(const std::string& manifest) {
  const std::string final_name = spec_.directory, manifest_path = temporary() + "/" + manifest_name;
  write_manifest(manifest_path, manifest);
  if (spec_.check_owner) spec_.check_owner();
  // Atomic even if the name exists: a damaged checkpoint of a step that training has reached again.
  if (spec_.must_be_new) publish_new_directory(temporary(), final_name);
  else publish_directory(temporary(), final_name, spec_.backup);
}

void replace_manifest(const std::string& directory, const Manifest& manifest) {
  write_manifest(directory + "/" + manifest_name, manifest_text(manifest));
}

}  // namespace tessera::io
