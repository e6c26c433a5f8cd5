// SPDX-License-Identifier: Apache-2.0
#pragma once
// World: start, agreement and end of a run's ranks. MPI processes, or threads in tests.

#include <functional>
#include <memory>
#include <string>

#include "runtime/base/device.hpp"
#include "runtime/base/error.hpp"
#include "runtime/comm/communicator.hpp"
#include "runtime/comm/mesh.hpp"
#include "runtime/comm/topology.hpp"

namespace tessera {

struct WorldOptions {
  enum class Comm : unsigned char { automatic, mpi, node, nccl };
  Comm comm = Comm::automatic;  // automatic: nccl on GPUs if it is built in, else node, or mpi if /dev/shm is too small
  enum class Backend : unsigned char { cpu, cuda, automatic };
  /// cuda: each rank takes a GPU (cuda::choose). automatic: cuda if every rank finds a usable GPU (its own, unless
  /// --comm mpi), else cpu, with a warning if there are GPUs.
  Backend backend = Backend::cpu;
  double comm_timeout_s = 600;  // a peer that is later than this ends the run
  int ranks_per_node = 0;  // 0: as the hosts have them; n: n consecutive ranks are treated as a node (tests, plans)
  std::uint64_t shared_bytes = 0;  // bytes of /dev/shm that the run will take on a node; 0: unknown, not checked
};

class World {
 public:
  virtual ~World() = default;
  [[nodiscard]] virtual int rank() const = 0;
  [[nodiscard]] virtual int size() const = 0;
  [[nodiscard]] virtual int node_rank() const = 0;  // among the ranks of this node
  [[nodiscard]] virtual int node_size() const = 0;
  [[nodiscard]] virtual int node_count() const = 0;
  [[nodiscard]] virtual std::string host() const = 0;
  [[nodiscard]] virtual Topology topology() const = 0;
  /// Device that this rank computes on; its communicators take pointers to it.
  [[nodiscard]] virtual Device device() const { return host_device; }
  /// Ranks that compute on device(), this one included. On the CPU: the ranks of the node.
  [[nodiscard]] virtual int ranks_on_device() const { return node_size(); }

  /// Collective: the communicator of this rank's group along `axes`. Its ranks are the coordinates in the group.
  [[nodiscard]] virtual std::unique_ptr<Communicator> communicator(const Mesh& mesh, AxisSet axes) = 0;

  /// Collective, for start-up and end only, since they allocate: sum, maximum, rank 0's text, and every rank's text on
  /// rank 0 (empty elsewhere).
  [[nodiscard]] virtual std::int64_t sum(std::int64_t value) = 0;
  [[nodiscard]] virtual std::int64_t max(std::int64_t value) = 0;
  [[nodiscard]] virtual std::string broadcast(const std::string& text) = 0;
  [[nodiscard]] virtual std::vector<std::string> gather(const std::string& text) = 0;
  virtual void barrier() = 0;
  /// Collective: throws Error (usage) on every rank, naming the first that differs, unless all ranks pass the same
  /// text.
  void require_equal(const std::string& what, const std::string& text);
  /// Collective: runs `phase` on every rank; if it throws on any, every rank throws the error of the lowest such rank.
  /// For file IO and other work that may fail on some ranks only.
  void run_and_agree(const std::function<void()>& phase);
  /// The same for what rank 0 alone does.
  void run_on_rank_0(const std::function<void()>& phase);
  /// Collective: the text that `make` returns on rank 0. Every rank throws the Error that it throws there.
  [[nodiscard]] std::string text_of_rank_0(const std::function<std::string()>& make);

  /// Collective: calls `call` with the Fortran handle of an MPI communicator of all ranks in their order, for a library
  /// that calls MPI itself (parallel HDF5). No other thread of this process calls MPI at that time. A call that takes
  /// longer than comm_timeout ends the run, which says `what` (a literal) it was doing. Throws what `call` throws, and
  /// Error (usage) where ranks are threads.
  virtual void with_mpi(const char* what, const std::function<void(int communicator)>& call);

  /// The step that the watchdog reports for this rank: from 1, 0 before training. Does not allocate.
  virtual void set_step(std::int64_t step) = 0;

  /// Prints one "error:" line and ends the run on every rank with `error`'s exit code. Any thread may call it.
  [[noreturn]] virtual void abort(const Error& error) = 0;
};

/// MPI_Init_thread, ranks ordered by host, transport and device chosen. Once per process; destroying the world
/// finalizes MPI. Throws Error (usage) for singletons that another MPI's launcher started.
[[nodiscard]] std::unique_ptr<World> bootstrap(const WorldOptions& options);

/// Runs `body` on `size` threads, each with its own World, and rethrows the first exception after all have ended; a
/// rank that throws makes its peers' waits throw. `copies`: no shared memory, as with mpi.
void run_local(int size, const std::function<void(World&)>& body, bool copies = false, int ranks_per_node = 0,
               double comm_timeout_s = 60);

}  // namespace tessera
