// SPDX-License-Identifier: Apache-2.0
// `tessera bench step`: training steps against the GEMM peak, of the CPU's sgemm or of the GPU's library, in one run.
#include <cmath>
#include <cstdio>
#include <ctime>
#include <nlohmann/json.hpp>

#include "jobs/bench/step_gemms.hpp"
#include "jobs/bench/tools.hpp"
#include "jobs/cli/session/checkpointing.hpp"
#include "jobs/cli/session/gemm_peak.hpp"
#include "jobs/cli/session/gpu_choices.hpp"
#include "jobs/cli/session/host_info.hpp"
#include "jobs/cli/session/log_lines.hpp"
#include "jobs/cli/session/precision.hpp"
#include "jobs/cli/session/resources.hpp"
#include "jobs/cli/session/setup.hpp"
#include "jobs/cli/session/strategy.hpp"
#include "jobs/cli/session/trainable.hpp"
#include "jobs/cli/session/versions.hpp"
#include "runtime/base/device_info.hpp"
#include "runtime/base/log.hpp"

namespace tessera::jobs {

namespace {

/// A strategy and the times of its steps.
struct Measurement {
  std::string name, word;  // "zero3 fp32", "zero3"
  const models::Model* model = nullptr;
  double gemms_alone = 0;  // seconds of a step's GEMMs by the library alone; 0: not measured
  Precision precision;
  shard::Recompute recompute = shard::Recompute::none;
  std::vector<double> seconds, comm, cpu;                     // cpu: of all threads of a rank, the mean over ranks
  std::size_t activations = 0;                                // bytes of a rank
  std::uint64_t pss = 0, planned = 0, arena = 0, in_use = 0;  // summed over ranks; in_use: of GPUs, by gpu_memory
  std::vector<kernels::RecordedGemm> gemms;                   // with --gemms, on rank 0
};

/// CPU seconds of this process so far, all threads.
double cpu_seconds() {
  timespec now{};
  ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

/// `steps` steps of one strategy after two to warm up.
void measure(Measurement& measurement, const Call& call, World& world, const io::TokenStream& tokens,
             std::int64_t steps) {
  check_gpu_choices(call.options(), world);  // an earlier measurement may have changed them
  train::TrainerOptions options = trainer_options(call.options(), *measurement.model, world, 1000000);
  options.run.strategy = shard::make_strategy(measurement.word, world.size(), 0, world.topology().ranks_per_node);
  apply_policy(call.options(), options.run.strategy.policy);
  options.run.strategy.policy.param_dtype = measurement.precision.compute;
  options.run.strategy.policy.reduce_dtype = measurement.precision.reduce;
  if (measurement.precision.compute != DType::f16) options.loss_scale.reset();
  options.lr.kind = train::LrSchedule::Kind::constant;
  if (chooses_recompute(call.options())) options.run.strategy.policy.recompute = measurement.recompute;
  train::Trainer trainer(world, options);
  trainer.initialize();
  const std::int64_t global = options.run.batch.global_batch;
  const io::Sampler sampler(io::count_samples(tokens.size(), options.run.tokens).samples, false, 1);
  const train::WarmupArgs warmup{&tokens, &sampler, global};
  const std::string choices = choose_gpu_kernels({&call.options(), &world, &trainer, warmup});
  if (measurement.seconds.empty() && !choices.empty() && !call.options().flag("json"))
    log::info(strfmt("kernels   %-12s ", measurement.name.c_str()) + choices);
  for (std::int64_t step = 0; step < steps + 2; ++step) {
    const double before = cpu_seconds();
    const train::StepReport report = trainer.step(tokens, sampler, step * global, global);
    const double used = 1e-9 * static_cast<double>(world.sum(std::llround(1e9 * (cpu_seconds() - before))));
    if (step < 2) continue;
    measurement.cpu.push_back(used / world.size());
    measurement.seconds.push_back(report.seconds);
    measurement.comm.push_back(report.comm_seconds);
  }
  const std::size_t arena = trainer.measured_memory().total();
  measurement.pss = static_cast<std::uint64_t>(world.sum(static_cast<std::int64_t>(pss_bytes())));
  measurement.arena = static_cast<std::uint64_t>(world.sum(static_cast<std::int64_t>(arena)));
  measurement.planned = static_cast<std::uint64_t>(world.sum(static_cast<std::int64_t>(trainer.plan().costs.total)));
  const std::uint64_t in_use = gpu_memory(world.device(), trainer.measured_memory()).process;
  measurement.in_use = static_cast<std::uint64_t>(world.sum(static_cast<std::int64_t>(in_use)));
  measurement.activations = trainer.measured_memory().by_category[static_cast<int>(plan::Category::activations)];
  if (call.options().flag("gemms")) measurement.gemms = time_step_gemms(world, trainer, warmup);
  world.barrier();
}

/// What the steps are compared with.
struct GemmPeak {
  std::string name;              // "sgemm", "bf16 8192^3"
  double before = 0, after = 0;  // GFLOP/s over all ranks
  [[nodiscard]] double flops() const { return std::max(before, after) * 1e9; }
};

struct StepWork {
  double tokens = 0, flops = 0,
         flops_halved = 0;  // of a step; causal attention counted in full (PaLM's formula), or as half
  bool on_gpu = false;
  int ranks = 1;
  ComputePeak peak;  // published, of all ranks' GPUs
};

StepGemms gemms_of(const Measurement& measurement, const StepWork& work) {
  return {.all = measurement.gemms,
          .step_seconds = median(measurement.seconds),
          .peak = work.peak.flops() / static_cast<double>(work.ranks)};
}

nlohmann::ordered_json measurement_json(const Measurement& measurement, const StepWork& work, const GemmPeak& limit) {
  const double seconds = median(measurement.seconds);
  nlohmann::ordered_json json = {{"step_s", seconds},
                                 {"cpu_s", median(measurement.cpu)},
                                 {"tokens_per_second", work.tokens / seconds},
                                 {"gflops", work.flops / seconds / 1e9},
                                 {work.on_gpu ? "share_of_gemm" : "share_of_sgemm",
                                  (work.on_gpu ? work.flops_halved : work.flops) / seconds / limit.flops()},
                                 {"comm_s", median(measurement.comm)},
                                 {"pss_bytes", measurement.pss},
                                 {"planned_bytes", measurement.planned},
                                 {"arena_bytes", measurement.arena},
                                 {"activation_bytes", measurement.activations},
                                 {"steps", measurement.seconds.size()}};
  if (work.peak.flops() > 0) {
    json["mfu_palm"] = work.flops / seconds / work.peak.flops();
    json["mfu_causal_halved"] = work.flops_halved / seconds / work.peak.flops();
  }
  if (work.on_gpu) json["device_bytes_in_use"] = measurement.in_use;
  if (measurement.gemms_alone > 0) json["gemms_alone_s"] = measurement.gemms_alone;
  if (!measurement.gemms.empty()) json["gemms"] = gemms_json(gemms_of(measurement, work));
  return json;
}

/// To standard error: a limit that ends the program in what is measured after the steps loses nothing of them.
void print_steps(const std::vector<Measurement>& measurements, const StepWork& work, const GemmPeak& limit) {
  nlohmann::ordered_json json;
  for (const Measurement& measurement : measurements)
    json[measurement.name] = measurement_json(measurement, work, limit);
  std::fprintf(stderr, "%s\n", json.dump(2).c_str());
}

void print_host(const std::vector<Measurement>& measurements, const StepWork& work, const GemmPeak& limit) {
  const auto alone = [](const Measurement& of) {
    return of.gemms_alone > 0 ? strfmt("%.1f%%", 100 * of.gemms_alone / median(of.seconds)) : std::string("-");
  };
  log::info(strfmt("%-16s %12s %12s %12s %12s %10s %14s %14s", "", "median step", "GFLOP/s", "of sgemm", "GEMMs alone",
                   "comm", "PSS, all", "arena, all"));
  for (const Measurement& measurement : measurements)
    log::info(strfmt("%-16s %9.2f ms %12.1f %11.1f%% %12s %9.1f%% %14s %14s", measurement.name.c_str(),
                     1e3 * median(measurement.seconds), work.flops / median(measurement.seconds) / 1e9,
                     100 * work.flops / median(measurement.seconds) / limit.flops(), alone(measurement).c_str(),
                     100 * median(measurement.comm) / median(measurement.seconds), human_bytes(measurement.pss).c_str(),
                     human_bytes(measurement.arena).c_str()));
}

void print_device(const std::vector<Measurement>& measurements, const StepWork& work, const GemmPeak& limit) {
  const double peak = work.peak.flops();
  log::info(
      peak > 0
          ? strfmt("MFU is a share of %.0f TFLOP/s, the published peak of all ranks' GPUs; causal attention counts "
                   "half (6 N + 6 L q T a token), or in full (PaLM's 12 L q T)",
                   peak / 1e12)
          : "no MFU: " + work.peak.why_unknown());
  const auto share = [&](double flops) { return peak > 0 ? strfmt("%.1f%%", 100 * flops / peak) : std::string("-"); };
  log::info(strfmt("%-16s %12s %10s %10s %10s %14s %12s %12s %12s", "", "median step", "tok/s", "MFU", "PaLM's",
                   ("of " + limit.name).c_str(), "planned", "arena", "in use"));
  for (const Measurement& measurement : measurements) {
    const double seconds = median(measurement.seconds);
    log::info(strfmt("%-16s %9.2f ms %10s %10s %10s %13.1f%% %12s %12s %12s", measurement.name.c_str(), 1e3 * seconds,
                     human_count(work.tokens / seconds).c_str(), share(work.flops_halved / seconds).c_str(),
                     share(work.flops / seconds).c_str(), 100 * work.flops_halved / seconds / limit.flops(),
                     human_bytes(measurement.planned).c_str(), human_bytes(measurement.arena).c_str(),
                     human_bytes(measurement.in_use).c_str()));
  }
}

/// What the forms of gradient checkpointing cost, if they were measured.
void print_recompute_cost(const std::vector<Measurement>& measurements) {
  const Measurement& none = measurements[0];
  for (const Measurement& measurement : measurements)
    if (measurement.recompute != shard::Recompute::none)
      log::info(strfmt("%s: %.3f times the step of none, %.3f times its CPU time, activations %s, of none %s",
                       measurement.name.c_str(), median(measurement.seconds) / median(none.seconds),
                       median(measurement.cpu) / median(none.cpu), human_bytes(measurement.activations).c_str(),
                       human_bytes(none.activations).c_str()));
}

/// Seconds of a step of the first measurement, relative to another; 0 if that was not measured.
double relative_to(const std::vector<Measurement>& measurements, const char* name) {
  const auto other = std::ranges::find(measurements, name, &Measurement::name);
  return other == measurements.end() ? 0 : median(measurements[0].seconds) / median(other->seconds);
}

/// Measurements: ZeRO-3; ZeRO-0, but for one rank with a GPU, where it is the same work; on the CPU ZeRO-3 in fp32 if
/// the two are not; and, where they are compared, ZeRO-3 with the other forms of checkpointing.
void print(const Call& call, const std::vector<Measurement>& measurements, const StepWork& work,
           const GemmPeak& limit) {
  const double overhead = relative_to(measurements, "zero0"), slower = relative_to(measurements, "zero3 fp32"),
               faster = slower > 0 ? 1 / slower : 0;
  const char* const compute = name_of(measurements[0].precision.compute);
  if (call.options().flag("json")) {
    const char* const gemm = work.on_gpu ? "gemm" : "sgemm";
    nlohmann::ordered_json json = {{strfmt("%s_before_gflops", gemm), limit.before},
                                   {strfmt("%s_after_gflops", gemm), limit.after}};
    if (overhead > 0) json["zero3_over_zero0"] = overhead;
    if (faster > 0) json[strfmt("%s_over_fp32", compute)] = faster;
    for (const Measurement& measurement : measurements)
      json[measurement.name] = measurement_json(measurement, work, limit);
    log::info(json.dump(2));
    return;
  }
  const double unit = work.on_gpu ? 1e3 : 1;
  log::info(strfmt("%-9s %.1f %s before, %.1f after, over all ranks (best of %ld%s)", limit.name.c_str(),
                   limit.before / unit, work.on_gpu ? "TFLOP/s" : "GFLOP/s", limit.after / unit,
                   call.options().integer("bench_repeats"), work.on_gpu ? "" : " of each shape"));
  if (work.on_gpu) print_device(measurements, work, limit);
  else print_host(measurements, work, limit);
  if (overhead > 0) log::info(strfmt("ZeRO-3 / ZeRO-0  %.4f", overhead));
  if (faster > 0) log::info(strfmt("%s: %.3f times the steps of fp32 (ZeRO-3, medians)", compute, faster));
  print_recompute_cost(measurements);
  for (const Measurement& measurement : measurements)
    if (!measurement.gemms.empty()) print_gemms(measurement.name, gemms_of(measurement, work));
}

/// GFLOP/s over all ranks: the best of all shapes on the CPU, of one large GEMM on GPUs.
double measure_gemm_peak(World& world, const models::Model& model, std::int64_t rows, DType compute, int repeats) {
  if (world.device() != host_device) return measure_device_gemm_on_all_ranks(world, compute, device_gemm_size, repeats);
  double limit = 0;
  for (const GemmShape& shape : gemm_shapes(model, rows))
    limit = std::max(limit, measure_gemm_on_all_ranks(world, shape, repeats));
  return limit;
}

}  // namespace

void bench_step_command(const Call& given, World& world) {
  Invocation invocation = given.invocation;
  decide_reduction(invocation.options, world.size(), world.device());
  const Call call{invocation, given.command_line, given.started};
  const Options& options = call.options();
  check_options(options);
  check_gpu_choices(options, world);
  check_gemms(options, world.device());
  const int threads = set_rank_threads(call.options(), world).threads;
  const ModelConfig config = read_model_config(options, &world);
  const Precision precision = precision_of(options);
  const models::Model model = make_training_model(options, config.text, config.path, precision.compute),
                      fp32_model = make_training_model(options, config.text, config.path, DType::f32);
  const std::int64_t length = sequence_length(options, model);
  const plan::BatchPlan batch = batch_of(options, world.size());
  const std::int64_t steps = options.integer("bench_steps");
  const RandomTokens tokens((steps + 2) * batch.global_batch * length + 1, model.vocab);
  const bool on_device = world.device() != host_device;
  const double all = static_cast<double>(batch.global_batch * length), square = static_cast<double>(length) * all;
  const StepWork work{.tokens = all,
                      .flops = model.train_flops(all, square),
                      .flops_halved = model.train_flops(all, square / 2),
                      .on_gpu = on_device,
                      .ranks = world.size(),
                      .peak = on_device ? gpu_peak(world, precision.compute) : ComputePeak()};
  if (!options.flag("json")) {
    log::info(version_line());
    log::info("precision " + precision.str());
    if (on_device) log::info("device    " + device_name(world.device()));
    log::info(strfmt("model     %s | %s parameters | T %ld | %s | %d threads a rank | transport %s",
                     config.path.c_str(), human_count(model.num_params()).c_str(), length, batch_line(batch).c_str(),
                     threads, name_of(world.topology().transport)));
  }
  const auto repeats = static_cast<int>(options.integer("bench_repeats"));
  const std::int64_t rows = batch.micro_batch * length;
  GemmPeak limit{.name = on_device ? strfmt("%s %ld^3", name_of(precision.compute), device_gemm_size) : "sgemm"};
  limit.before = measure_gemm_peak(world, model, rows, precision.compute, repeats);
  // Each in two halves, alternating, so that a change of the machine's speed affects all alike.
  std::vector<Measurement> measurements;
  const bool one_gpu = on_device && world.size() == 1;
  for (const char* word : {"zero3", "zero0"})
    if (measurements.empty() || !one_gpu)
      measurements.push_back(
          {.name = word, .word = word, .model = &model, .precision = precision, .seconds = {}, .comm = {}, .cpu = {}});
  if (precision.compute != DType::f32 && !on_device)
    measurements.push_back({.name = "zero3 fp32",
                            .word = "zero3",
                            .model = &fp32_model,
                            .precision = {},
                            .seconds = {},
                            .comm = {},
                            .cpu = {}});
  for (const auto form : {shard::Recompute::keep_all, shard::Recompute::selective, shard::Recompute::full})
    if (chooses_recompute(options))
      measurements.push_back({.name = strfmt("zero3 %s", name_of(form)),
                              .word = "zero3",
                              .model = &model,
                              .precision = precision,
                              .recompute = form,
                              .seconds = {},
                              .comm = {},
                              .cpu = {}});
  const bool alone = measurements.size() == 1;  // nothing to alternate with
  for (const std::int64_t part : alone ? std::vector{steps} : std::vector{(steps + 1) / 2, steps / 2}) {
    for (Measurement& measurement : measurements) {
      if (part == 0) continue;
      measure(measurement, call, world, tokens, part);
      if (!options.flag("json"))
        log::info(strfmt("          %-16s %zu of %ld steps, median %.2f s", measurement.name.c_str(),
                         measurement.seconds.size(), steps, median(measurement.seconds)));
    }
  }
  if (options.flag("json") && world.rank() == 0) print_steps(measurements, work, limit);
  limit.after = measure_gemm_peak(world, model, rows, precision.compute, repeats);
  for (Measurement& measurement : measurements) {
    if (on_device) break;
    const auto same = std::ranges::find(measurements, measurement.model, &Measurement::model);
    measurement.gemms_alone = &*same != &measurement
                                  ? same->gemms_alone
                                  : static_cast<double>(batch.accumulation) *
                                        seconds_of_gemms_alone(world, *measurement.model, rows, repeats);
  }
  print(call, measurements, work, limit);
}

}  // namespace tessera::jobs
