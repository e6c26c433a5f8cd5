// SPDX-License-Identifier: Apache-2.0
#pragma once
// BaseWorld: what worlds of MPI processes and of threads have in common: the choice of communicators, and the small
// collectives of World.

#include <memory>

#include "runtime/comm/endpoint.hpp"
#include "runtime/comm/shared_memory.hpp"
#include "runtime/comm/world.hpp"

namespace tessera::comm {

class BaseWorld : public World {
 public:
  [[nodiscard]] int rank() const final { return rank_; }
  [[nodiscard]] int size() const final { return size_; }
  [[nodiscard]] int node_rank() const final;
  [[nodiscard]] int node_size() const final;
  [[nodiscard]] int node_count() const final;
  [[nodiscard]] Topology topology() const final { return topology_; }
  [[nodiscard]] Device device() const final { return device_; }
  [[nodiscard]] std::unique_ptr<Communicator> communicator(const Mesh& mesh, AxisSet axes) final;

  [[nodiscard]] std::int64_t sum(std::int64_t value) final;
  [[nodiscard]] std::int64_t max(std::int64_t value) final;
  [[nodiscard]] std::string broadcast(const std::string& text) final;
  [[nodiscard]] std::vector<std::string> gather(const std::string& text) final;
  void barrier() final;
  [[nodiscard]] MessageCount messages() const { return message_count(*control_); }
  void set_step(std::int64_t step) final { watchdog().mine().step.store(step, std::memory_order_relaxed); }

 protected:
  BaseWorld(int rank, int size) : rank_(rank), size_(size) {}
  /// Creates the communicator behind sum(), barrier() and the like. Needs topology_, watchdog() and split_endpoint().
  void open_control();
  void close_control() { control_.reset(); }

  [[nodiscard]] virtual Watchdog& watchdog() = 0;
  /// Collective over the world, as MPI_Comm_split: an endpoint / shared memory for the ranks of one `color`, in order
  /// of `key`; null for color -1.
  [[nodiscard]] virtual std::unique_ptr<Endpoint> split_endpoint(int color, int key) = 0;
  [[nodiscard]] virtual std::shared_ptr<SharedMemory> split_shared_memory(int color, int key) = 0;

  int rank_, size_;
  Topology topology_;
  Device device_;

 private:
  [[nodiscard]] CommunicatorInfo new_info(const Mesh& mesh, AxisSet axes);
  [[nodiscard]] std::unique_ptr<Communicator> host_communicator(CommunicatorInfo info, bool in_place);
  std::unique_ptr<Communicator> control_;
};

}  // namespace tessera::comm
