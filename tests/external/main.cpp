// SPDX-License-Identifier: Apache-2.0
// Trains a small recurrent language model, sharded: as threads of this process, or as ranks of an MPI job.
//
//   recurrent check                      gradients against finite differences
//   recurrent threads N STRATEGY         N ranks as threads
//   mpirun -n N recurrent mpi STRATEGY   N processes
#include <io/data/dataset.hpp>
#include <runtime/base/log.hpp>
#include <runtime/comm/world.hpp>
#include <runtime/plan/batch.hpp>
#include <runtime/shard/policy.hpp>
#include <runtime/train/trainer.hpp>

#include <cstdio>
#include <cstring>
#include <stdexcept>

#include "gradient_check.hpp"
#include "recurrent_block.hpp"

namespace recurrent {
namespace {

constexpr std::int64_t channels = 48, vocab = 31, tokens = 32, steps = 30, global_batch = 12;

/// Data of one's own: a stream needs a size and a read. Ids follow a rule that needs memory: each is the sum of the
/// last two.
class Fibonacci final : public tessera::io::TokenStream {
 public:
  Fibonacci() : ids_(8192) {
    ids_[0] = 1, ids_[1] = 1;
    for (std::size_t i = 2; i < ids_.size(); ++i)
      ids_[i] = (ids_[i - 1] + ids_[i - 2]) % static_cast<std::int32_t>(vocab);
  }
  [[nodiscard]] std::int64_t size() const override { return static_cast<std::int64_t>(ids_.size()); }
  void read(std::int64_t first, std::int64_t count, std::int32_t* out) const override {
    std::memcpy(out, ids_.data() + first, static_cast<std::size_t>(count) * sizeof *out);
  }

 private:
  std::vector<std::int32_t> ids_;
};

void train(tessera::World& world, const std::string& strategy) {
  const models::Model model = make_model(3, channels, vocab, tokens);
  tessera::train::TrainerOptions options;
  options.run.model = &model;
  options.run.strategy = tessera::shard::make_strategy(strategy, world.size(), 0, world.topology().ranks_per_node);
  options.run.batch = tessera::plan::solve_batch(global_batch, 2, std::nullopt, world.size());
  options.run.tokens = tokens;
  options.lr = {.kind = tessera::train::LrSchedule::Kind::constant, .learning_rate = 1e-2, .total_steps = steps};

  tessera::train::Trainer trainer(world, options);
  trainer.initialize();
  const Fibonacci data;
  const tessera::io::Sampler order(tessera::io::count_samples(data.size(), tokens).samples, true, 7);
  double first = 0, last = 0;
  for (std::int64_t step = 0; step < steps; ++step) {
    const auto report = trainer.step(data, order, step * global_batch, global_batch);
    (step == 0 ? first : last) = report.loss;
    if (world.rank() == 0)
      std::printf("step %2d loss %.17g grad_norm %.17g\n", static_cast<int>(report.step), report.loss,
                  report.grad_norm);
  }
  if (!(last < 0.5 * first)) throw std::runtime_error("the loss did not fall to half");
}

int main_of(int argc, char** argv) {
  const std::string mode = argc > 1 ? argv[1] : "";
  if (mode == "check") return gradient_check() < 1e-7 ? 0 : 1;
  if (mode == "threads" && argc == 4) {
    tessera::run_local(std::stoi(argv[2]), [&](tessera::World& world) { train(world, argv[3]); });
    return 0;
  }
  if (mode == "mpi" && argc == 3) {
    const auto world = tessera::bootstrap({});
    try {
      train(*world, argv[2]);
    } catch (const tessera::Error& error) { world->abort(error); } catch (const std::exception& error) {
      world->abort({tessera::ExitCode::internal, error.what()});
    }
    return 0;
  }
  std::fprintf(stderr, "recurrent check | threads N STRATEGY | mpi STRATEGY\n");
  return 2;
}

}  // namespace
}  // namespace recurrent

int main(int argc, char** argv) {
  try {
    return recurrent::main_of(argc, argv);
  } catch (const std::exception& error) {
    tessera::log::error(error.what());
    return 1;
  }
}
