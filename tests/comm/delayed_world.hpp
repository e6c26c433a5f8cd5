// SPDX-License-Identifier: Apache-2.0
#pragma once
// A world whose communicators are slow, to show overlap and to find missing waits.

#include "runtime/comm/world.hpp"

namespace tessera::test {

struct Delay {
  double gather_s = 0, reduce_s = 0, norm_s = 0;  // slept before each collective of that kind
  double per_byte_s = 0;                          // and in proportion to its bytes
  void (*disturb)() = nullptr;                    // called before each collective
};

/// Takes ownership of `inner`.
[[nodiscard]] std::unique_ptr<Communicator> delayed(std::unique_ptr<Communicator> inner, const Delay& delay);

/// The world `inner`, which must outlive it.
class DelayedWorld final : public World {
 public:
  DelayedWorld(World& inner, const Delay& delay) : inner_(inner), delay_(delay) {}

  int rank() const override { return inner_.rank(); }
  int size() const override { return inner_.size(); }
  int node_rank() const override { return inner_.node_rank(); }
  int node_size() const override { return inner_.node_size(); }
  int node_count() const override { return inner_.node_count(); }
  std::string host() const override { return inner_.host(); }
  Topology topology() const override { return inner_.topology(); }
  Device device() const override { return inner_.device(); }
  int ranks_on_device() const override { return inner_.ranks_on_device(); }
  std::unique_ptr<Communicator> communicator(const Mesh& mesh, AxisSet axes) override;
  std::int64_t sum(std::int64_t value) override { return inner_.sum(value); }
  std::int64_t max(std::int64_t value) override { return inner_.max(value); }
  std::string broadcast(const std::string& text) override { return inner_.broadcast(text); }
  std::vector<std::string> gather(const std::string& text) override { return inner_.gather(text); }
  void barrier() override { inner_.barrier(); }
  void with_mpi(const char* what, const std::function<void(int)>& call) override { inner_.with_mpi(what, call); }
  void set_step(std::int64_t step) override { inner_.set_step(step); }
  [[noreturn]] void abort(const Error& error) override {
    inner_.abort(error);
    __builtin_unreachable();
  }

 private:
  World& inner_;
  Delay delay_;
};

}  // namespace tessera::test
