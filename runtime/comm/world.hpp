#pragma once
// World: how a run finds its peers, agrees with them, and ends with them. MPI processes, or threads in tests.

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
  Comm comm =
      Comm::automatic;  // automatic: node, unless /dev/shm is too small (says so); on devices nccl, where that is built
  enum class Backend : unsigned char { cpu, cuda, automatic };
  /// cuda: each rank takes a device, by its number on its host. automatic: that, where every rank finds one that it can
  /// use (of its own, but over mpi); else cpu.
  Backend backend = Backend::cpu;
  double comm_timeout_s = 600;     // a peer later than this ends the run
  int ranks_per_node = 0;          // 0: what the hosts say; n: treat each n consecutive ranks as a node (tests, plans)
  std::uint64_t shared_bytes = 0;  // /dev/shm that the node's windows will take in all, for the check; 0: not known yet
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
  /// Where this rank computes, and its communicators' memory lies.
  [[nodiscard]] virtual Device device() const { return host_device; }

  /// Collective: the communicator of this rank's group along `axis`.
  [[nodiscard]] virtual std::unique_ptr<Communicator> communicator(const Mesh& mesh, Axis axis) = 0;

  /// Collective, start-up and end only (they allocate). Sum, maximum, rank 0's text, everybody's text on rank 0 (else
  /// empty).
  [[nodiscard]] virtual std::int64_t sum(std::int64_t value) = 0;
  [[nodiscard]] virtual std::int64_t max(std::int64_t value) = 0;
  [[nodiscard]] virtual std::string broadcast(const std::string& text) = 0;
  [[nodiscard]] virtual std::vector<std::string> gather(const std::string& text) = 0;
  virtual void barrier() = 0;
  /// Collective: throws Error (usage) on every rank, naming a rank that differs, unless all pass the same text.
  void require_equal(const std::string& what, const std::string& text);
  /// Collective: runs `phase` on every rank; if it throws on any, every rank throws the error of the lowest such rank.
  /// The way to do file IO that only some ranks may fail at.
  void run_and_agree(const std::function<void()>& phase);

  /// What the watchdog says this rank is doing; `step` counts from 1, 0 before training. No allocation.
  virtual void set_step(std::int64_t step) = 0;

  /// Ends the run on every rank with `error`'s exit code, after one "error:" line from here. Any thread may call it.
  [[noreturn]] virtual void abort(const Error& error) = 0;
};

/// MPI_Init_thread, node split, checks (N singletons started by another MPI's launcher are refused, exit 2). Once per
/// process; destroying it finalises MPI. argc/argv as MPI wants them.
[[nodiscard]] std::unique_ptr<World> bootstrap(const WorldOptions& options);

/// Runs `body` on `size` threads, each with its own World, and rethrows the first exception once all have ended: a rank
/// that throws makes its peers' waits throw too. `copies`: no shared memory, as mpi.
void run_local(int size, const std::function<void(World&)>& body, bool copies = false, int ranks_per_node = 0,
               double comm_timeout_s = 60);

}  // namespace tessera
