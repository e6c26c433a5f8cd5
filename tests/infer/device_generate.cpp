// SPDX-License-Identifier: Apache-2.0
// Run by mpirun: generates on a device, with decode passes replayed as graphs and without, and on the host.
//   device_generate simulated|real
// simulated: equal to the host bit for bit. real: equal with and without replays. Exits 0 if all is well, 77 without a
// device.
#include <cstdio>
#include <string>

#include "kernels/threads.hpp"
#include "runtime/base/cuda/devices.hpp"
#include "runtime/base/error.hpp"
#include "runtime/infer/inference.hpp"
#include "tests/train/device/no_device.hpp"
#include "tests/train/run.hpp"

namespace tessera::test {
namespace {

constexpr std::int64_t rows = 2, new_tokens = 8;

infer::GenerateRequest five_prompts(double temperature) {
  infer::GenerateRequest request;
  request.prompts = {{1, 2, 3}, {7}, {5, 6, 7, 8, 9, 10}, {11, 12}, {0, 36, 0, 36, 0}};
  request.max_new_tokens = new_tokens;
  request.sampling.temperature = temperature;
  return request;
}

infer::GenerateReport generate(World& world, const models::Model& model, const infer::GenerateRequest& request,
                               bool replays) {
  infer::InferenceOptions options;
  options.replays = replays;
  options.run.purpose = plan::Purpose::generate;
  options.run.model = &model;
  options.run.strategy = shard::make_strategy(world.size() == 1 ? "3" : "0", world.size(), 0, world.size());
  options.run.strategy.policy.param_dtype = model.dtype;
  options.run.batch = {
      .global_batch = rows * world.size(), .micro_batch = rows, .data_ranks = world.size(), .accumulation = 1};
  const infer::GenerationShape shape = infer::generation_shape(request, rows);
  options.run.tokens = shape.tokens;
  options.run.cache_tokens = shape.cache_tokens;
  infer::Inference inference(world, options);
  inference.initialize(5);
  infer::GenerateRequest first = request;
  first.prompts.resize(1);
  const infer::GenerateReport one = inference.generate(first);  // then from one row to two, and to one again
  infer::GenerateReport report = inference.generate(request);
  first.sampling.top_k = 3;  // another rule, with the rows that the last micro-batch had
  for (const infer::GenerateReport& other : {one, inference.generate(first)}) {
    report.completions.insert(report.completions.end(), other.completions.begin(), other.completions.end());
    report.decode.passes += other.decode.passes;
    report.decode.replayed += other.decode.replayed;
  }
  if (const std::string broken = inference.arena().broken_canary(); !broken.empty())
    world.abort(Error(ExitCode::internal, "canary of slot " + broken + " is broken", "generate"));
  return report;
}

/// Decode passes that a rank replays: all but the first of each number of rows in a row, and of another way to sample.
std::int64_t expected_replays(const World& world, std::size_t prompts, double temperature) {
  std::int64_t replayed = 0, last = 0, requests = 0;
  for (const auto all : {std::int64_t{1}, static_cast<std::int64_t>(prompts), std::int64_t{1}}) {
    if (++requests == 3 && temperature > 0) last = 0;
    for (std::int64_t first = world.rank() * rows; first < all; first += rows * world.size()) {
      const std::int64_t count = std::min(rows, all - first);
      replayed += new_tokens - 1 - (count == last ? 0 : 1);
      last = count;
    }
  }
  return replayed;
}

int compare(World& world, const models::Model& model, double temperature, bool exact) {
  const infer::GenerateRequest request = five_prompts(temperature);
  const auto with = generate(world, model, request, true), without = generate(world, model, request, false);
  bool good = with.completions == without.completions && without.decode.replayed == 0 &&
              with.decode.replayed == expected_replays(world, request.prompts.size(), temperature);
  if (exact && world.rank() == 0)
    run_local(
        1, [&](World& host) { good = generate(host, model, request, true).completions == with.completions && good; });
  if (!good)
    std::printf("rank %d: temperature %g, %s: %ld and %ld of %ld passes replayed, %ld expected; %s\n", world.rank(),
                temperature, name_of(model.dtype), with.decode.replayed, without.decode.replayed, with.decode.passes,
                expected_replays(world, request.prompts.size(), temperature),
                with.completions == without.completions ? "the same tokens" : "other tokens");
  return good ? 0 : 1;
}

int compare_all(World& world, bool exact) {
  int wrong = 0;
  for (const std::string& config : {config_json({.positions = 32}), std::string(qwen3_config)})
    for (const DType dtype : {DType::f32, DType::bf16}) {
      models::Model model = models::make(config, "test", dtype);
      for (ParamSpec& param : model.params) param.storage_dtype = model.dtype;
      for (const double temperature : {0.0, 1.5}) wrong += compare(world, model, temperature, exact);
    }
  return static_cast<int>(world.max(wrong));
}

}  // namespace
}  // namespace tessera::test

int main(int argc, char** argv) {
  using namespace tessera;
  if (argc != 2) return 2;
  kernels::set_threads(1);
  try {
    const auto world = bootstrap({.comm = WorldOptions::Comm::mpi, .backend = WorldOptions::Backend::cuda});
    const int wrong = test::compare_all(*world, std::string(argv[1]) == "simulated");
    if (world->rank() == 0) std::printf("%d ranks, device %s: %d differences\n", world->size(), argv[1], wrong);
    return wrong == 0 ? 0 : 1;
  } catch (const Error& error) { return test::exit_code_of(error); }
}
