// MPI shared windows: one per allocation, allocated by the group's first rank, so that it is contiguous.
#include <mpi.h>
#include <sys/mman.h>
#include <sys/statvfs.h>

#include <vector>

#include "runtime/base/error.hpp"
#include "runtime/comm/mpi/mpi.hpp"

namespace tessera::comm {

unsigned long long free_shared_memory() {
  struct statvfs room {};
  if (::statvfs("/dev/shm", &room) != 0) return ~0ULL;
  return static_cast<unsigned long long>(room.f_bavail) * room.f_frsize;
}

namespace {

constexpr std::size_t page_bytes = 4096;

class MpiSharedMemory final : public SharedMemory {
 public:
  explicit MpiSharedMemory(int communicator) : handle_(communicator), comm_(MPI_Comm_f2c(communicator)) {
    std::lock_guard lock(mpi_mutex());
    TESSERA_MPI(MPI_Comm_rank(comm_, &rank_));
    TESSERA_MPI(MPI_Comm_size(comm_, &size_));
  }
  ~MpiSharedMemory() override {
    for (const auto& own : maps_) ::munmap(own.data, own.bytes);
    if (mpi_usable() && std::uncaught_exceptions() == 0) {
      std::lock_guard lock(mpi_mutex());
      for (auto& window : windows_) MPI_Win_free(&window);
    }
    release_mpi(handle_);
  }

  int rank() const override { return rank_; }
  int size() const override { return size_; }

  std::byte* allocate(std::size_t bytes) override {
    return size_ == 1 ? allocate_alone(bytes) : allocate_shared(bytes);
  }

 private:
  struct Map {
    void* data;
    std::size_t bytes;
  };

  std::byte* allocate_alone(std::size_t bytes) {
    void* data = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (data == MAP_FAILED) throw Error(ExitCode::does_not_fit, strfmt("no memory for %zu bytes", bytes));
    ::madvise(data, bytes, MADV_HUGEPAGE);
    maps_.push_back({data, bytes});
    return static_cast<std::byte*>(data);
  }

  std::byte* allocate_shared(std::size_t bytes) {
    std::lock_guard lock(mpi_mutex());
    unsigned long long room = free_shared_memory();
    TESSERA_MPI(MPI_Bcast(&room, 1, MPI_UNSIGNED_LONG_LONG, 0, comm_));
    if (room < bytes)
      throw Error(ExitCode::data,
                  strfmt("/dev/shm has %llu MiB left, a window of %zu MiB is needed", room >> 20, bytes >> 20),
                  "transport node", "Enlarge /dev/shm (mount -o remount,size=…), or use --comm mpi");
    MPI_Win window = MPI_WIN_NULL;
    void* base = nullptr;
    const auto wanted = static_cast<MPI_Aint>(rank_ == 0 ? bytes + page_bytes : 0);
    TESSERA_MPI(MPI_Win_allocate_shared(wanted, 1, MPI_INFO_NULL, comm_, static_cast<void*>(&base), &window));
    windows_.push_back(window);
    MPI_Aint size = 0;
    int unit = 0;
    TESSERA_MPI(MPI_Win_shared_query(window, 0, &size, &unit, static_cast<void*>(&base)));
    // Mappings are page-aligned in every process, so rounding up gives the same byte everywhere.
    auto address = reinterpret_cast<std::uintptr_t>(base);
    address = (address + page_bytes - 1) / page_bytes * page_bytes;
    return reinterpret_cast<std::byte*>(address);
  }

  int handle_;
  MPI_Comm comm_;
  int rank_ = 0, size_ = 0;
  std::vector<MPI_Win> windows_;
  std::vector<Map> maps_;
};

}  // namespace

std::shared_ptr<SharedMemory> mpi_shared_memory(int communicator) {
  return std::make_shared<MpiSharedMemory>(communicator);
}

}  // namespace tessera::comm
