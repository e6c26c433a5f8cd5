// SPDX-License-Identifier: Apache-2.0
// The waits between the queues of a device are enough, and needed: a queue may run as far ahead as they allow, and a
// step without one of them gives other bits.
#include "tests/simulated_device/wait_order.hpp"

#include <dlfcn.h>

#include <algorithm>
#include <cstdio>

#include "tests/train/device/device_runs.hpp"

namespace tessera::test {
namespace {

using simulated::WaitOrder;

const WaitOrder& device_order() {
  void* const found = ::dlsym(RTLD_DEFAULT, simulated::wait_order_name);
  TESSERA_ASSERT(found != nullptr, "this is not the simulated device");
  return *reinterpret_cast<decltype(&simulated::tessera_simulated_wait_order)>(found)();
}

constexpr int steps = 4, dropped_in = 2;

/// What rank 0 drops, as WaitOrder::drop.
struct Drop {
  int queue = -1;
  std::int64_t wait = -1;
};

/// Losses, norms and weights of four steps; `drop` holds from the third on, by when weights have changed. `waits`:
/// those of the third step, by queue.
std::string outcome(World& world, const models::Model& model, const Variant& v, const Drop& drop,
                    std::vector<std::int64_t>* waits = nullptr) {
  const WaitOrder& order = device_order();
  order.number_queues();
  const RandomTokens tokens(400, 37);
  const io::Sampler sampler(io::count_samples(tokens, v.tokens).samples, true, 11);
  Said said;
  train::Trainer trainer(world, options_of(model, v, steps));
  trainer.initialize();
  try {
    for (int s = 0; s < steps; ++s) {
      if (s == dropped_in) order.drop(world.rank() == 0 ? drop.queue : -1, drop.wait);
      const auto report = trainer.step(tokens, sampler, s * v.global_batch, v.global_batch);
      said.numbers.insert(said.numbers.end(), {report.loss, report.grad_norm});
      for (int queue = 0; s == dropped_in && waits != nullptr && order.waits(queue) >= 0; ++queue)
        waits->push_back(world.max(order.waits(queue)));
    }
    said.hash = trainer.state_hash();
  } catch (const Error& error) {  // not finite, on all ranks
    if (error.code() != ExitCode::diverged) throw;
    return error.line();
  }
  return said.str();
}

struct Count {
  int waits = 0, change_results = 0, implied = 0, without_effect = 0, missing = 0;
};

/// Of all queues, or of the last `queues` that the run makes.
Count count_waits(World& world, const models::Model& model, const Variant& v, std::size_t queues = 100) {
  std::vector<std::int64_t> waits;
  const std::string expected = outcome(world, model, v, {}, &waits);
  const auto differs = [&](const Drop& drop) {
    return world.max(outcome(world, model, v, drop) != expected ? 1 : 0) > 0;
  };
  Count count;
  for (int queue = static_cast<int>(waits.size() - std::min(waits.size(), queues));
       queue < static_cast<int>(waits.size()); ++queue) {
    if (differs({queue, -1})) {
      std::printf("%s: a wait is missing: queue %d ran ahead\n", v.str().c_str(), queue);
      ++count.missing;
    }
    for (std::int64_t wait = 0; wait < waits[static_cast<std::size_t>(queue)]; ++wait) {
      ++count.waits;
      if (differs({queue, wait})) {
        ++count.change_results;
      } else if (world.max(world.rank() == 0 && device_order().needed() ? 1 : 0) == 0) {
        ++count.implied;
      } else {
        ++count.without_effect;
        if (world.rank() == 0) std::printf("wait %d of queue %d has no effect\n", static_cast<int>(wait), queue);
      }
    }
  }
  return count;
}

/// Prints the count. How much of it is wrong.
int check_counts(World& world, const Variant& v, const Count& count) {
  if (world.rank() == 0)
    std::printf("%s: %d waits: %d change the results, %d are implied by other waits, %d have no effect\n",
                v.strategy.c_str(), count.waits, count.change_results, count.implied, count.without_effect);
  const int allowed = world.size() == 1 ? 0 : count.waits / 8;
  return count.missing + (count.change_results == 0 ? 1 : 0) + std::max(0, count.without_effect - allowed);
}

/// The two communication streams of a run with replicas: the last streams that it makes.
int two_streams(World& world) {
  const Variant v{.world = 4, .strategy = "HYBRID_SHARD", .group = 2, .global_batch = 8};
  return check_counts(world, v, count_waits(world, models::make(config_json({.layers = 1}), "test"), v, 2));
}

}  // namespace

// One rank has no wait without effect. The staged transport of several ranks has a few, because the host waits for its
// copies down, so that these waits protect nothing:
// - A gather's copy down comes after all that the stream was given, but reads only this rank's shard, which the step
// has
//   not changed yet.
// - compute waits for a reduce before it writes the gradient's slot again; by then the host has waited for the copy
// down
//   that reads the slot, and what compute would overtake are the copies up, to another buffer.
int wait_order(World& world) {
  if (world.size() == 4) return two_streams(world);
  int wrong = 0;
  const models::Model model = models::make(config_json({.layers = 3}), "test");
  for (const char* strategy : {"2", "3"}) {
    const Variant v{
        .world = world.size(), .strategy = strategy, .global_batch = 2 * world.size(), .recompute = strategy[0] == '3'};
    wrong += check_counts(world, v, count_waits(world, model, v));
  }
  return wrong;
}

}  // namespace tessera::test
