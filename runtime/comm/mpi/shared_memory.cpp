// SPDX-License-Identifier: Apache-2.0
// Shared memory of the ranks of a node: POSIX segments in /dev/shm, made by the group's first rank, mapped by all, and
// unlinked before their first use, so that none is left behind. Mappings of our own, and not MPI windows, have sizes
// that a plan can know.
#include <fcntl.h>
#include <mpi.h>
#include <sys/mman.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <array>
#include <cstring>
#include <optional>
#include <vector>

#include "runtime/base/error.hpp"
#include "runtime/base/mapping.hpp"
#include "runtime/comm/mpi/mpi.hpp"

namespace tessera::comm {

std::uint64_t free_shared_memory() {
  struct statvfs status {};
  if (::statvfs("/dev/shm", &status) != 0) return ~std::uint64_t{0};
  return status.f_bavail * status.f_frsize;
}

namespace {

/// Closes a file at the end of a scope.
struct File {
  explicit File(int number_) : number(number_) {}
  ~File() {
    if (number >= 0) ::close(number);
  }
  File(const File&) = delete;
  File& operator=(const File&) = delete;
  int number;
};

using SegmentName = std::array<char, 64>;

/// Makes a segment under a name that nobody has; the name is empty if the system refuses.
SegmentName create_segment(std::size_t bytes) {
  static int made = 0;
  SegmentName name{};
  for (int attempt = 0; attempt < 1000; ++attempt) {
    std::snprintf(name.data(), name.size(), "/tessera-%d-%d-%d", static_cast<int>(::getpid()), made++, attempt);
    const File file(::shm_open(name.data(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
    if (file.number < 0 && errno == EEXIST) continue;  // of a process of another PID namespace
    if (file.number < 0) return {};
    if (::ftruncate(file.number, static_cast<off_t>(round_to_pages(bytes))) == 0) return name;
    ::shm_unlink(name.data());
    return {};
  }
  return {};
}

class MpiSharedMemory final : public SharedMemory {
 public:
  explicit MpiSharedMemory(int communicator) : handle_(communicator), comm_(MPI_Comm_f2c(communicator)) {
    std::lock_guard lock(mpi_mutex());
    TESSERA_MPI(MPI_Comm_rank(comm_, &rank_));
    TESSERA_MPI(MPI_Comm_size(comm_, &size_));
  }
  ~MpiSharedMemory() override {
    maps_.clear();
    release_mpi(handle_);
  }

  int rank() const override { return rank_; }
  int size() const override { return size_; }

  std::byte* allocate(std::size_t bytes) override {
    return size_ == 1 ? allocate_alone(bytes) : allocate_shared(bytes);
  }

 private:
  std::byte* allocate_alone(std::size_t bytes) {
    maps_.push_back(Mapping::anonymous(bytes, "tessera node"));
    return maps_.back().data();
  }

  std::byte* allocate_shared(std::size_t bytes) {
    std::lock_guard lock(mpi_mutex());
    const BlockingCall call("creating shared memory");
    std::uint64_t free_bytes = free_shared_memory();
    TESSERA_MPI(MPI_Bcast(&free_bytes, 1, MPI_UINT64_T, 0, comm_));
    if (free_bytes < bytes)
      throw Error(ExitCode::data,
                  strfmt("/dev/shm has %lu MiB left, a segment of %zu MiB is needed", free_bytes >> 20, bytes >> 20),
                  "transport node", "Enlarge /dev/shm (mount -o remount,size=…), or use --comm mpi");
    SegmentName name{};
    if (rank_ == 0) name = create_segment(bytes);
    TESSERA_MPI(MPI_Bcast(name.data(), static_cast<int>(name.size()), MPI_CHAR, 0, comm_));
    std::optional<Error> refused;
    try {
      const File file(name[0] == 0 ? -1 : ::shm_open(name.data(), O_RDWR | O_CLOEXEC, 0));
      if (file.number < 0)
        throw Error(ExitCode::data, strfmt("no shared segment of %zu bytes: %s", bytes, strerror(errno)));
      maps_.push_back(Mapping::of_file(file.number, bytes));
    } catch (const Error& error) { refused = error; }
    int refusals = refused ? 1 : 0;
    TESSERA_MPI(MPI_Allreduce(MPI_IN_PLACE, &refusals, 1, MPI_INT, MPI_SUM, comm_));
    if (rank_ == 0 && name[0] != 0) ::shm_unlink(name.data());
    if (refusals > 0)
      throw Error(ExitCode::data, refused ? refused->line() : "another rank of the node cannot map a shared segment",
                  "transport node", "Look at /dev/shm (its size and permissions), or use --comm mpi");
    return maps_.back().data();
  }

  int handle_;
  MPI_Comm comm_;
  int rank_ = 0, size_ = 0;
  std::vector<Mapping> maps_;
};

}  // namespace

std::shared_ptr<SharedMemory> mpi_shared_memory(int communicator) {
  return std::make_shared<MpiSharedMemory>(communicator);
}

}  // namespace tessera::comm
