// `tessera bench gemm|collectives|step|io|convert|generate`: this machine, and a training step against it, both sides in one run.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <nlohmann/json.hpp>

#include "jobs/commands/bench_tools.hpp"
#include "jobs/run/limit.hpp"
#include "jobs/run/machine.hpp"
#include "jobs/run/precision.hpp"
#include "jobs/run/device_choices.hpp"
#include "jobs/run/report.hpp"
#include "jobs/run/room.hpp"
#include "jobs/run/setup.hpp"
#include "jobs/run/versions.hpp"
#include "kernels/threads.hpp"
#include "runtime/base/log.hpp"

namespace tessera::jobs {

namespace {

int bench_gemm(const Call& call, World& world) {
  const Options& options = call.options();
  const int threads = take_cores(call.options(), world).threads;
  std::vector<GemmShape> shapes{{512, 512, 512}, {1024, 1024, 1024}, {2048, 2048, 2048}};
  if (options.has("model") || options.has("shape")) {
    const ModelConfig config = read_model_config(options, &world);
    const models::Model model = models::make(config.text, config.path);
    shapes = gemm_shapes(model, batch_of(options, world.size()).micro_batch * sequence_length(options, model));
  }
  nlohmann::ordered_json json;
  json["ranks"] = world.size(), json["threads_per_rank"] = threads, json["bf16_kernel"] = kernels::bf16_gemm_name();
  if (!options.flag("json")) {
    log::info(version_line());
    log::info(strfmt("GFLOP/s of gemm, %d ranks at once, %d threads each, best of %lld; bf16 by %s, fp32 by %s", world.size(), threads,
                     static_cast<long long>(options.integer("bench_repeats")), kernels::bf16_gemm_name(), kernels::blas_version().c_str()));
    log::info(strfmt("%8s %8s %8s %14s %14s %10s", "m", "n", "k", "fp32", "bf16", "bf16/fp32"));
  }
  for (const GemmShape& shape : shapes) {
    const auto repeats = static_cast<int>(options.integer("bench_repeats"));
    const double speed = measure_together(world, shape, repeats), bf16_speed = measure_together(world, shape, repeats, DType::bf16);
    json["shapes"].push_back({{"m", shape.m}, {"n", shape.n}, {"k", shape.k}, {"gflops", speed}, {"bf16_gflops", bf16_speed}});
    if (!options.flag("json")) {
      log::info(strfmt("%8lld %8lld %8lld %14.1f %14.1f %10.2f", static_cast<long long>(shape.m), static_cast<long long>(shape.n),
                       static_cast<long long>(shape.k), speed, bf16_speed, bf16_speed / speed));
    }
  }
  if (options.flag("json")) log::info(json.dump(2));
  return static_cast<int>(ExitCode::ok);
}

/// The best sum over ranks of all shapes.
double machine_limit(World& world, const std::vector<GemmShape>& shapes, int repeats) {
  double limit = 0;
  for (const GemmShape& shape : shapes) limit = std::max(limit, measure_together(world, shape, repeats));
  return limit;
}

struct Side {
  std::string name, word;  // "zero3 fp32", "zero3"
  const models::Model* model = nullptr;
  Precision precision;
  std::vector<double> seconds, comm;
  std::uint64_t pss = 0, arena = 0;  // summed over ranks
};

/// `steps` steps of one strategy after two to warm up.
void measure(Side& side, const Call& call, World& world, const io::TokenStream& tokens, std::int64_t steps) {
  train::TrainerOptions options = trainer_options(call.options(), *side.model, world, 1000000);
  options.run.strategy = shard::make_strategy(side.word, world.size(), 0, world.topology().ranks_per_node);
  apply_policy(call.options(), options.run.strategy.policy);
  options.run.strategy.policy.param_dtype = side.precision.compute;
  options.run.strategy.policy.reduce_dtype = side.precision.reduce;
  if (side.precision.compute != DType::f16) options.loss_scale.reset();
  options.lr.kind = train::LrSchedule::Kind::constant;
  train::Trainer trainer(world, options);
  trainer.initialise();
  const std::int64_t global = options.run.batch.global_batch;
  const io::Sampler sampler(io::count_samples(tokens.size(), options.run.tokens).samples, false, 1);
  const std::string choices = rehearse_choices({&call.options(), &world, &trainer, {&tokens, &sampler, global}});
  if (side.seconds.empty() && !choices.empty() && !call.options().flag("json")) log::info(strfmt("kernels   %-12s ", side.name.c_str()) + choices);
  for (std::int64_t step = 0; step < steps + 2; ++step) {
    const train::StepReport report = trainer.step(tokens, sampler, step * global, global);
    if (step < 2) continue;
    side.seconds.push_back(report.seconds);
    side.comm.push_back(report.comm_seconds);
  }
  std::size_t arena = 0;
  for (int c = 0; c < plan::num_categories; ++c) arena += trainer.measured_memory()[c];
  side.pss = static_cast<std::uint64_t>(world.sum(static_cast<std::int64_t>(pss_bytes())));
  side.arena = static_cast<std::uint64_t>(world.sum(static_cast<std::int64_t>(arena)));
  world.barrier();
}

/// Sides: ZeRO-3, ZeRO-0, and ZeRO-3 in fp32 where the two are not.
void print_step(const Call& call, const std::vector<Side>& sides, double flops, double before, double after) {
  const double limit = std::max(before, after) * 1e9, overhead = median(sides[0].seconds) / median(sides[1].seconds);
  const double faster = sides.size() > 2 ? median(sides[2].seconds) / median(sides[0].seconds) : 0;
  const char* const compute = name_of(sides[0].precision.compute);
  if (call.options().flag("json")) {
    nlohmann::ordered_json json = {
        {"sgemm_before_gflops", before}, {"sgemm_after_gflops", after}, {"zero3_over_zero0", overhead}};
    if (faster > 0) json[strfmt("%s_over_fp32", compute)] = faster;
    for (const Side& side : sides) {
      json[side.name] = {{"step_s", median(side.seconds)},
                         {"gflops", flops / median(side.seconds) / 1e9},
                         {"share_of_sgemm", flops / median(side.seconds) / limit},
                         {"comm_s", median(side.comm)},
                         {"pss_bytes", side.pss},
                         {"arena_bytes", side.arena},
                         {"steps", side.seconds.size()}};
    }
    log::info(json.dump(2));
    return;
  }
  log::info(strfmt("sgemm     %.1f GFLOP/s before, %.1f after, over all ranks (best of %lld of each shape)", before, after,
                   static_cast<long long>(call.options().integer("bench_repeats"))));
  log::info(
      strfmt("%-12s %12s %12s %12s %10s %14s %14s", "", "median step", "GFLOP/s", "of sgemm", "comm", "PSS, all", "arena, all"));
  for (const Side& side : sides) {
    log::info(strfmt("%-12s %9.2f ms %12.1f %11.1f%% %9.1f%% %14s %14s", side.name.c_str(), 1e3 * median(side.seconds),
                     flops / median(side.seconds) / 1e9, 100 * flops / median(side.seconds) / limit,
                     100 * median(side.comm) / median(side.seconds), human_bytes(static_cast<double>(side.pss)).c_str(),
                     human_bytes(static_cast<double>(side.arena)).c_str()));
  }
  log::info(strfmt("ZeRO-3 / ZeRO-0  %.4f", overhead));
  if (faster > 0) log::info(strfmt("%s: %.3f times the steps of fp32 (ZeRO-3, medians)", compute, faster));
}

int bench_step(const Call& call, World& world) {
  const Options& options = call.options();
  check_options(options);
  check_device_choices(options, world);
  const int threads = take_cores(call.options(), world).threads;
  const ModelConfig config = read_model_config(options, &world);
  const Precision precision = precision_of(options);
  const models::Model model = models::make(config.text, config.path, precision.compute), whole = models::make(config.text, config.path);
  const std::int64_t length = sequence_length(options, model);
  const plan::BatchPlan batch = batch_of(options, world.size());
  const std::int64_t steps = options.integer("bench_steps");
  const RandomTokens tokens((steps + 2) * batch.global_batch * length + 1, model.vocab);
  const double flops = model.train_flops_per_token(length) * static_cast<double>(batch.global_batch * length);
  if (!options.flag("json")) {
    log::info(version_line());
    if (!precision.str().empty()) log::info("precision " + precision.str());
    log::info(strfmt("model     %s | %s parameters | T %lld | %s | %d threads a rank | transport %s", config.path.c_str(),
                     human_count(static_cast<double>(model.num_params())).c_str(), static_cast<long long>(length),
                     batch_line(batch).c_str(), threads, name_of(world.topology().transport)));
  }
  const std::vector<GemmShape> shapes = gemm_shapes(model, batch.micro_batch * length);
  const auto repeats = static_cast<int>(options.integer("bench_repeats"));
  const double before = machine_limit(world, shapes, repeats);
  // Each side twice, in turns, so that a drifting machine does not favour one.
  std::vector<Side> sides;
  for (const char* word : {"zero3", "zero0"}) sides.push_back({.name = word, .word = word, .model = &model, .precision = precision, .seconds = {}, .comm = {}});
  if (precision.compute != DType::f32) sides.push_back({.name = "zero3 fp32", .word = "zero3", .model = &whole, .precision = {}, .seconds = {}, .comm = {}});
  for (const std::int64_t part : {(steps + 1) / 2, steps / 2}) {
    for (Side& side : sides) {
      if (part == 0) continue;
      measure(side, call, world, tokens, part);
      if (!options.flag("json"))
        log::info(strfmt("          %-12s %zu of %lld steps, median %.2f s", side.name.c_str(), side.seconds.size(), static_cast<long long>(steps), median(side.seconds)));
    }
  }
  const double after = machine_limit(world, shapes, repeats);
  print_step(call, sides, flops, before, after);
  return static_cast<int>(ExitCode::ok);
}

}  // namespace

int bench_command(const Call& call, World& world) {
  const std::vector<std::string>& operands = call.invocation.operands;
  const std::string what = operands.empty() ? "" : operands[0];
  if (what == "gemm") return bench_gemm(call, world);
  if (what == "collectives") return bench_collectives_command(call, world);
  if (what == "step") return bench_step(call, world);
  if (what == "generate") return bench_generate_command(call, world);
  if (what == "tokenizer") return bench_tokenizer_command(call, world);
  if (what == "io") return bench_io_command(call, world);
  if (what == "convert") return bench_convert_command(call, world);
  throw Error(ExitCode::usage, what.empty() ? "bench needs a word" : "bench does not know \"" + what + "\"", "command line",
              "tessera bench gemm|collectives|step|io|convert|generate|tokenizer");
}

}  // namespace tessera::jobs
