// SPDX-License-Identifier: Apache-2.0
// The world of MPI processes: start, nodes, choice of transport, end of the run.
#include <mpi.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <numeric>
#include <optional>
#include <thread>

#include "runtime/base/cuda/devices.hpp"
#include "runtime/base/log.hpp"
#include "runtime/comm/base_world.hpp"
#include "runtime/comm/launcher_environment.hpp"
#include "runtime/comm/mpi/mpi.hpp"
#include "runtime/comm/mpi/watchdog.hpp"
#include "runtime/comm/nccl/communicator.hpp"

namespace tessera {

namespace {

using namespace comm;

/// The launcher's ranks reordered by host, so that consecutive ranks share a node.
struct Hosts {
  int rank = 0, size = 1;  // in the new order
  int host_rank = 0;       // among the ranks of this host
  std::vector<int> sizes;  // ranks per host, in the new order
  MPI_Comm world = MPI_COMM_NULL;
};

Hosts find_hosts() {
  Hosts hosts;
  int old_rank = 0;
  TESSERA_MPI(MPI_Comm_rank(MPI_COMM_WORLD, &old_rank));
  TESSERA_MPI(MPI_Comm_size(MPI_COMM_WORLD, &hosts.size));
  MPI_Comm host = MPI_COMM_NULL;
  TESSERA_MPI(MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, old_rank, MPI_INFO_NULL, &host));
  TESSERA_MPI(MPI_Comm_rank(host, &hosts.host_rank));
  int leader = old_rank;
  TESSERA_MPI(MPI_Bcast(&leader, 1, MPI_INT, 0, host));
  TESSERA_MPI(MPI_Comm_free(&host));
  std::vector<int> leaders(static_cast<std::size_t>(hosts.size));
  TESSERA_MPI(MPI_Allgather(&leader, 1, MPI_INT, leaders.data(), 1, MPI_INT, MPI_COMM_WORLD));
  hosts.rank =
      static_cast<int>(std::count_if(leaders.begin(), leaders.end(), [&](int other) { return other < leader; })) +
      hosts.host_rank;
  std::sort(leaders.begin(), leaders.end());
  for (std::size_t i = 0; i < leaders.size(); ++i) {
    if (i == 0 || leaders[i] != leaders[i - 1]) hosts.sizes.push_back(0);
    ++hosts.sizes.back();
  }
  TESSERA_MPI(MPI_Comm_split(MPI_COMM_WORLD, 0, hosts.rank, &hosts.world));
  return hosts;
}

/// Consecutive ranks per node: the ranks of a host; the greatest common divisor if hosts differ.
int width_of_nodes(const Hosts& hosts, const WorldOptions& options) {
  const int first = hosts.sizes.front();
  const bool even = std::all_of(hosts.sizes.begin(), hosts.sizes.end() - 1, [&](int n) { return n == first; });
  const int natural =
      even && hosts.sizes.back() <= first
          ? first
          : std::accumulate(hosts.sizes.begin(), hosts.sizes.end(), 0, [](int a, int b) { return std::gcd(a, b); });
  if (options.ranks_per_node <= 0) return natural;
  int begin = 0;
  for (const int n : hosts.sizes) {
    if (begin % options.ranks_per_node != 0 && options.comm != WorldOptions::Comm::mpi)
      throw Error(ExitCode::usage,
                  strfmt("a node of %d consecutive ranks would lie on two hosts", options.ranks_per_node),
                  "ranks_per_node", strfmt("Take a divisor of %d, or --comm mpi", natural));
    begin += n;
  }
  return std::min(options.ranks_per_node, hosts.size);
}

std::string host_name() {
  char name[256] = "";
  ::gethostname(name, sizeof name - 1);
  if (char* dot = std::strchr(name, '.')) *dot = '\0';
  return name;
}

class MpiWorld final : public BaseWorld {
 public:
  MpiWorld(const Hosts& hosts, const WorldOptions& asked)
      : BaseWorld(hosts.rank, hosts.size), world_(hosts.world), host_(host_name()) {
    log::set_rank(rank_, size_, host_);
    topology_.ranks_per_node = width_of_nodes(hosts, asked);
    const WorldOptions options = resolved(hosts, asked);
    topology_.transport = choose(options);
    MPI_Comm quiet = MPI_COMM_NULL;
    TESSERA_MPI(MPI_Comm_dup(world_, &quiet));
    watchdog_comm_ = MPI_Comm_c2f(quiet);
    watchdog_ = std::make_unique<MpiWatchdog>(rank_, size_, options.comm_timeout_s, watchdog_comm_,
                                              topology_.ranks_per_node, [this](const Error& error) { abort(error); });
    watchdog_->set_names(all_gather(strfmt("%d@%s", rank_, host_.c_str())));
    open_status_table();
    watchdog_->start();
    try {
      open_control();
      if (options.backend == WorldOptions::Backend::cuda) take_device(hosts);
    } catch (...) {
      close_control();  // it writes its end into the status table, which goes before the base class
      throw;
    }
  }

  ~MpiWorld() override {
    if (std::uncaught_exceptions() > 0 || watchdog_->failed())
      end(watchdog_->root_or(Error(ExitCode::internal, "an exception ended a rank")));
    try {
      barrier();
      watchdog_->mine().ended.store(1);
      barrier();  // all ranks know of the end: a rank that exits is not reported as dead
      close_control();
      watchdog_->stop();
      std::lock_guard lock(mpi_mutex());
      status_memory_.reset();
      release_mpi(watchdog_comm_);
      if (library_comm_ != MPI_COMM_NULL) MPI_Comm_free(&library_comm_);
      MPI_Comm_free(&world_);
      set_mpi_usable(false);
      MPI_Finalize();
    } catch (const Error& error) { end(error); } catch (const std::exception& error) {
      end(Error(ExitCode::internal, error.what()));
    }
  }

  std::string host() const override { return host_; }
  int ranks_on_device() const override { return ranks_on_device_ > 0 ? ranks_on_device_ : node_size(); }
  void abort(const Error& error) override { end(watchdog_->root_or(error)); }
  void with_mpi(const char* what, const std::function<void(int)>& call) override {
    std::lock_guard lock(mpi_mutex());
    const BlockingCall watched(what);
    if (library_comm_ == MPI_COMM_NULL) TESSERA_MPI(MPI_Comm_dup(world_, &library_comm_));
    call(MPI_Comm_c2f(library_comm_));
  }

 private:
  Watchdog& watchdog() override { return *watchdog_; }

  /// Resolves Backend::automatic, alike on all ranks.
  WorldOptions resolved(const Hosts& hosts, WorldOptions options) const {
    if (options.backend != WorldOptions::Backend::automatic) return options;
    options.backend = WorldOptions::Backend::cpu;
    if constexpr (cuda_built)
      if (options.comm != WorldOptions::Comm::node && every_rank_has_gpu(hosts, options.comm))
        options.backend = WorldOptions::Backend::cuda;
    return options;
  }

  /// Warns if not every rank has one, though some rank sees GPUs.
  bool every_rank_has_gpu(const Hosts& hosts, WorldOptions::Comm comm) const {
    const auto sharing = comm == WorldOptions::Comm::mpi ? cuda::Sharing::shared : cuda::Sharing::one_each;
    char why_not[512] = "";
    const cuda::HostRank mine = host_rank(hosts);
    try {
      (void)cuda::choose(cuda::survey(), mine, sharing);
    } catch (const Error& error) { std::snprintf(why_not, sizeof why_not, "%s", error.line().c_str()); }
    int first[2] = {why_not[0] != '\0' ? rank_ : size_, cuda::survey().devices.empty() ? 0 : -1};
    TESSERA_MPI(MPI_Allreduce(MPI_IN_PLACE, first, 2, MPI_INT, MPI_MIN, world_));
    if (first[0] == size_) return true;
    TESSERA_MPI(MPI_Bcast(why_not, sizeof why_not, MPI_CHAR, first[0], world_));
    if (first[1] < 0)
      log::warn(58, strfmt("--backend auto uses the CPU, though there are GPUs: rank %d: ", first[0]) + why_not);
    return false;
  }

  Transport choose(const WorldOptions& options) {
    if (options.backend == WorldOptions::Backend::cuda) return choose_on_devices(options);
    if (options.comm == WorldOptions::Comm::nccl)
      throw Error(ExitCode::usage, "--comm nccl moves the memory of devices, and the run is on the CPU", "--backend",
                  "Use --comm auto");
    if (options.comm == WorldOptions::Comm::mpi) return Transport::mpi;
    // shared_bytes is what a node's ranks take together. Each host checks its own /dev/shm.
    std::uint64_t free_bytes = size_ > 1 ? free_shared_memory() : ~std::uint64_t{0};
    TESSERA_MPI(MPI_Allreduce(MPI_IN_PLACE, &free_bytes, 1, MPI_UINT64_T, MPI_MIN, world_));
    if (free_bytes >= options.shared_bytes) return Transport::node;
    const auto what = strfmt("/dev/shm has %lu MiB left on some node, the run's windows take %lu MiB", free_bytes >> 20,
                             options.shared_bytes >> 20);
    if (options.comm == WorldOptions::Comm::node)
      throw Error(ExitCode::data, what, "--comm node", "Enlarge /dev/shm (mount -o remount,size=…), or use --comm mpi");
    log::warn(20, what + ": falling back to --comm mpi");
    return Transport::mpi;
  }

  static Transport choose_on_devices(const WorldOptions& options) {
    if (!cuda_built)
      throw Error(ExitCode::usage, "this program was built without CUDA", "--backend cuda",
                  "Build it where nvcc is (docs/cuda.md)");
    if (options.comm == WorldOptions::Comm::node)
      throw Error(ExitCode::usage, "--comm node shares host memory, and the run is on devices", "--backend cuda",
                  "Use --comm auto");
    if (options.comm == WorldOptions::Comm::nccl && !nccl_built)
      throw Error(ExitCode::usage, "this program was built without NCCL", "--comm nccl",
                  "Build it where nccl.h is, or use --comm mpi");
    return nccl_built && options.comm != WorldOptions::Comm::mpi ? Transport::nccl : Transport::mpi;
  }

  /// Takes a GPU. Fails on all ranks or none.
  void take_device([[maybe_unused]] const Hosts& hosts) {
    if constexpr (cuda_built) {
      topology_.staged = topology_.transport != Transport::nccl;
      const cuda::HostRank on_host = host_rank(hosts);
      run_and_agree([&] {
        device_ =
            cuda::choose(cuda::survey(), on_host, topology_.staged ? cuda::Sharing::shared : cuda::Sharing::one_each);
        cuda::use(device_);
      });
      const std::string& mine = cuda::survey().devices[static_cast<std::size_t>(device_.index)].uuid;
      ranks_on_device_ = static_cast<int>(std::ranges::count(texts_of_host(hosts, mine), mine));
    }
  }
  cuda::HostRank host_rank(const Hosts& hosts) const {
    const auto& gpus = cuda::survey().devices;
    return {hosts.host_rank, texts_of_host(hosts, gpus.empty() ? "" : gpus.front().uuid)};
  }

  /// Collective: a short text of every rank, cut after 63 characters.
  std::vector<std::string> all_gather(const std::string& text) const {
    constexpr std::size_t chars = 64;
    std::vector<char> all(chars * static_cast<std::size_t>(size_));
    char mine[chars] = "";
    std::snprintf(mine, sizeof mine, "%s", text.c_str());
    TESSERA_MPI(MPI_Allgather(mine, chars, MPI_CHAR, all.data(), chars, MPI_CHAR, world_));
    std::vector<std::string> texts;
    for (std::size_t r = 0; r < static_cast<std::size_t>(size_); ++r) texts.emplace_back(all.data() + r * chars);
    return texts;
  }
  /// The same, of the ranks of this host alone.
  std::vector<std::string> texts_of_host(const Hosts& hosts, const std::string& text) const {
    const std::vector<std::string> all = all_gather(text);
    const auto first = all.begin() + (hosts.rank - hosts.host_rank);
    auto ranks = hosts.sizes.begin();
    for (auto begin = all.begin(); begin != first; ++ranks) begin += *ranks;
    return {first, first + *ranks};
  }

  /// Allocates the status table of this node's ranks in shared memory.
  void open_status_table() {
    const int first = rank_ - node_rank(), count = node_size();
    status_memory_ = split_shared_memory(first, rank_);
    const std::size_t head = 64;
    std::byte* base = nullptr;
    std::optional<Error> refused;  // one node may lack space; then all ranks throw
    try {
      base = status_memory_->allocate(head + sizeof(RankStatus) * static_cast<std::size_t>(count));
    } catch (const Error& error) { refused = error; }
    int refusals = refused ? 1 : 0;
    TESSERA_MPI(MPI_Allreduce(MPI_IN_PLACE, &refusals, 1, MPI_INT, MPI_SUM, world_));
    if (refusals > 0)
      throw refused.value_or(
          Error(ExitCode::data, "/dev/shm has no room left on another node", "rank status table", "Free some of it"));
    watchdog_->attach(reinterpret_cast<NodeStatus*>(base), reinterpret_cast<RankStatus*>(base + head), first, count);
    auto& mine = watchdog_->mine();
    struct stat space {};
    if (::stat("/proc/self/ns/pid", &space) == 0) mine.pid_namespace.store(static_cast<std::int64_t>(space.st_ino));
    mine.alive_ns.store(monotonic_ns());
    mine.pid.store(::getpid());
    TESSERA_MPI(MPI_Barrier(world_));
  }

  int split(int color, int key) {
    std::lock_guard lock(mpi_mutex());
    const BlockingCall call("creating a communicator (MPI_Comm_split)");
    MPI_Comm part = MPI_COMM_NULL;
    TESSERA_MPI(MPI_Comm_split(world_, color < 0 ? MPI_UNDEFINED : color, key, &part));
    if (part != MPI_COMM_NULL) TESSERA_MPI(MPI_Comm_set_errhandler(part, MPI_ERRORS_RETURN));
    return MPI_Comm_c2f(part);
  }
  std::vector<bool> on_other_nodes(int part) const {
    std::lock_guard lock(mpi_mutex());
    MPI_Group world = MPI_GROUP_NULL, group = MPI_GROUP_NULL;
    int size = 0;
    TESSERA_MPI(MPI_Comm_group(world_, &world));
    TESSERA_MPI(MPI_Comm_group(MPI_Comm_f2c(part), &group));
    TESSERA_MPI(MPI_Group_size(group, &size));
    std::vector<int> members(static_cast<std::size_t>(size)), ranks(members);
    std::iota(members.begin(), members.end(), 0);
    TESSERA_MPI(MPI_Group_translate_ranks(group, size, members.data(), world, ranks.data()));
    MPI_Group_free(&group);
    MPI_Group_free(&world);
    std::vector<bool> elsewhere;
    for (const int rank : ranks)
      elsewhere.push_back(rank / topology_.ranks_per_node != rank_ / topology_.ranks_per_node);
    return elsewhere;
  }
  std::unique_ptr<Endpoint> split_endpoint(int color, int key) override {
    const int part = split(color, key);
    return color < 0 ? nullptr : mpi_endpoint(part, on_other_nodes(part));
  }
  std::shared_ptr<SharedMemory> split_shared_memory(int color, int key) override {
    const int part = split(color, key);
    return color < 0 ? nullptr : mpi_shared_memory(part);
  }

  [[noreturn]] void end(const Error& error) noexcept;

  MPI_Comm world_, library_comm_ = MPI_COMM_NULL;
  std::string host_;
  int watchdog_comm_ = 0, ranks_on_device_ = 0;  // 0: on the CPU
  std::shared_ptr<SharedMemory> status_memory_;
  std::unique_ptr<MpiWatchdog> watchdog_;
};

void sleep_s(double seconds) { std::this_thread::sleep_for(std::chrono::duration<double>(seconds)); }

void MpiWorld::end(const Error& error) noexcept {
  static std::atomic<bool> ending{false};
  const int code = static_cast<int>(error.code());
  if (ending.exchange(true)) {  // another thread of this process is ending the run
    sleep_s(10);
    std::_Exit(code);
  }
  set_mpi_usable(false);
  // One rank of a node prints the error. Other nodes wait a moment for the first, so that a common error is printed
  // once.
  if (rank_ >= topology_.ranks_per_node) sleep_s(0.3);
  std::int32_t nobody = 0;
  if (watchdog_->node_status().aborting.compare_exchange_strong(nobody, rank_ + 1)) log::error_here(error.line());
  else sleep_s(1.5);  // the rank that printed ends the run; this is in case it cannot
  std::fflush(stdout);
  std::unique_lock lock(mpi_mutex(), std::chrono::milliseconds(200));
  if (size_ == 1 && lock.owns_lock()) MPI_Finalize();  // no peer to end: avoids the message of MPI_Abort
  else MPI_Abort(MPI_COMM_WORLD, code);
  std::_Exit(code);
}

/// torchrun and accelerate start N processes that MPI knows nothing of: each would train alone, into one directory.
void refuse_other_launcher() {
  const char *ranks = std::getenv("WORLD_SIZE"), *rank = std::getenv("RANK");
  if (ranks == nullptr || rank == nullptr || std::atoi(ranks) < 2) return;
  MPI_Finalize();
  throw Error(ExitCode::usage, strfmt("%d ranks were started, but not by MPI: this one is alone", std::atoi(ranks)),
              strfmt("WORLD_SIZE=%s, RANK=%s", ranks, rank),
              strfmt("Use tessera launch -n %d -- train …, mpirun or srun in place of torchrun; or unset WORLD_SIZE",
                     std::atoi(ranks)));
}

}  // namespace

std::unique_ptr<World> bootstrap(const WorldOptions& options) {
  const LauncherEnvironment launcher = launcher_environment();
  int provided = 0, size = 0;
  TESSERA_MPI(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_MULTIPLE, &provided));
  TESSERA_MPI(MPI_Comm_size(MPI_COMM_WORLD, &size));
  if (provided < MPI_THREAD_SERIALIZED) {
    MPI_Finalize();
    throw Error(ExitCode::communication, "this MPI does not provide MPI_THREAD_SERIALIZED", "MPI_Init_thread",
                "Use an MPI built with thread support");
  }
  if (size == 1 && launcher.size > 1) {
    MPI_Finalize();
    throw Error(
        ExitCode::usage, strfmt("%d ranks were started, but this one is alone", launcher.size),
        strfmt("%s=%d", launcher.size_variable, launcher.size),
        "The launcher belongs to another MPI than the one this program was built with: use that one's mpirun, or srun "
        "--mpi=pmix");
  }
  if (size == 1 && *launcher.size_variable == '\0') refuse_other_launcher();
  TESSERA_MPI(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN));
  set_mpi_usable(true);
  try {
    return std::make_unique<MpiWorld>(find_hosts(), options);
  } catch (...) {
    set_mpi_usable(false);
    MPI_Finalize();  // every rank throws the same error here
    throw;
  }
}

}  // namespace tessera
