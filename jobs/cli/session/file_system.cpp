// SPDX-License-Identifier: Apache-2.0
#include "jobs/cli/session/file_system.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "io/file/file.hpp"
#include "jobs/cli/options/values.hpp"
#include "runtime/base/error.hpp"

namespace tessera::jobs {

namespace {

struct KnownType {
  unsigned long type;
  const char *name, *advice;
};

// Types as linux/magic.h, and the file systems' own sources, have them.
constexpr KnownType known_types[] = {
    {0xEF53, "ext2, ext3 or ext4", ""},
    {0x58465342, "XFS", ""},
    {0x9123683E, "Btrfs",
     "chattr +C on the empty output directory: otherwise each block is copied and its checksum taken again"},
    {0x01021994, "tmpfs", "it is memory: a checkpoint there is gone with the machine"},
    {0x794C7630, "overlayfs", "a container's own layer is gone with it: mount a directory of the host"},
    {0x2FC12FC1, "ZFS", ""},
    {0x6969, "NFS",
     "mount it with hard, and without nolock or local_lock; one host's cache does not see another's files for seconds "
     "(actimeo). Untried by Tessera"},
    {0x0BD00BD0, "Lustre",
     "lfs setstripe -c -1 -S 4M DIR before the first checkpoint, so that ranks write to all targets, and "
     "--checkpoint_alignment 4MiB; mount with flock, or two runs in one directory are not kept apart. Untried by "
     "Tessera"},
    {0x47504653, "GPFS (Storage Scale)",
     "blocks of 4 MiB or more suit ranks that write large ranges, with --checkpoint_alignment 4MiB. Untried by "
     "Tessera"},
    {0x19830326, "BeeGFS",
     "beegfs-ctl --setpattern --numtargets=8 --chunksize=4m DIR before the first checkpoint, and "
     "--checkpoint_alignment 4MiB; tuneUseGlobalFileLocks for locks between hosts. Untried by Tessera"},
    {0x00C36400, "CephFS", "Untried by Tessera"},
    {0x65735546, "FUSE", "what it does is up to the program behind it: see the lines above. Untried by Tessera"},
    {0x01021997, "9p", "Untried by Tessera"},
};

/// A directory of its own in `parent`, which is removed with all that is in it.
class Trial {
 public:
  explicit Trial(const std::string& parent) : path_(parent + "/.tessera-doctor-XXXXXX") {
    if (::mkdtemp(path_.data()) == nullptr) throw io::system_error("write", parent, errno);
  }
  ~Trial() { io::remove_tree_quietly(path_); }
  Trial(const Trial&) = delete;
  Trial& operator=(const Trial&) = delete;
  [[nodiscard]] std::string file(const char* name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

std::string yes_or(bool good, const char* otherwise) {
  return good ? "yes" : std::string("no (") + std::strerror(errno) + "): " + otherwise;
}

std::string direct_io(const std::string& path) {
  const io::File file = io::File::open_to_write(path, io::Cache::direct);
  alignas(4096) static const std::byte page[4096] = {};
  const bool good = file.descriptor() >= 0 && ::pwrite(file.descriptor(), page, sizeof page, 0) == sizeof page;
  return yes_or(good, "checkpoints go through the page cache");
}

std::string space_in_advance(const io::File& file) {
  return yes_or(::fallocate(file.descriptor(), 0, 0, 1 << 20) == 0,
                "a full disk is found while a checkpoint is written, not before");
}

std::string exchange(const Trial& trial) {
  const std::string a = trial.file("a"), b = trial.file("b");
  io::make_directories(a);
  io::make_directories(b);
  return yes_or(::renameat2(AT_FDCWD, a.c_str(), AT_FDCWD, b.c_str(), RENAME_EXCHANGE) == 0,
                "a damaged checkpoint is replaced in two renames");
}

std::string lock(const io::File& file) {
  return yes_or(::flock(file.descriptor(), LOCK_EX | LOCK_NB) == 0,
                "two runs in one output directory are not kept apart, and a killed run is not recognized");
}

}  // namespace

FileSystemType file_system_type(unsigned long type) {
  for (const KnownType& known : known_types)
    if (known.type == type) return {known.name, known.advice};
  return {strfmt("0x%lx", type), ""};
}

std::vector<std::pair<std::string, std::string>> file_system_facts(const std::string& directory) {
  struct statfs system {};
  if (::statfs(directory.c_str(), &system) != 0) throw io::system_error("read", directory, errno);
  const FileSystemType type = file_system_type(static_cast<unsigned long>(system.f_type) & 0xFFFFFFFFUL);
  const auto block = static_cast<double>(system.f_bsize);
  std::vector<std::pair<std::string, std::string>> facts = {
      {"directory", directory},
      {"file system", type.name + ", " + human_bytes(block * static_cast<double>(system.f_bavail)) + " free of " +
                          human_bytes(block * static_cast<double>(system.f_blocks))}};
  const Trial trial(directory);
  const io::File file = io::File::create(trial.file("file"));
  facts.emplace_back("O_DIRECT", direct_io(trial.file("file")));
  facts.emplace_back("fallocate", space_in_advance(file));
  facts.emplace_back("exchange names", exchange(trial));
  facts.emplace_back("lock (flock)", lock(file));
  if (!type.advice.empty()) facts.emplace_back("advice", type.advice);
  return facts;
}

}  // namespace tessera::jobs
