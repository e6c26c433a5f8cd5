// SPDX-License-Identifier: Apache-2.0
// `tessera bench generate`: prompt processing against the GEMM peak, and generation against memory bandwidth. The CPU's
// GEMM and memory are measured; a GPU's are as published.
#include <nlohmann/json.hpp>

#include "jobs/bench/tools.hpp"
#include "jobs/cli/session/gemm_peak.hpp"
#include "jobs/cli/session/inference.hpp"
#include "jobs/cli/session/log_lines.hpp"
#include "jobs/cli/session/precision.hpp"
#include "jobs/cli/session/resources.hpp"
#include "jobs/cli/session/versions.hpp"
#include "kernels/bandwidth.hpp"
#include "runtime/base/device_info.hpp"
#include "runtime/base/log.hpp"

namespace tessera::jobs {

namespace {

constexpr std::int64_t bench_prompt = 64, bench_new_tokens = 32, bench_rows = 1;
constexpr std::size_t least_read = std::size_t{256} << 20;  // larger than most caches
constexpr int bench_turns = 3;  // of reading memory and generating, since other work changes both

/// What generation is compared with, over all ranks.
struct GenerateReference {
  bool on_gpu = false;
  double gemm = 0;    // GFLOP/s: sgemm as measured; of a GPU the published peak in the model's dtype. 0: unknown
  double memory = 0;  // GB/s of a GPU's memory, as published. 0: unknown. The host's is measured, alternately
  [[nodiscard]] const char* gemm_name() const { return on_gpu ? "the published peak" : "sgemm"; }
};

struct GenerateTimes {
  infer::GenerateReport report;
  double prompt_rate = 0, next_rate = 0;  // tokens a second over all ranks: of prompts, generated
  double pass_seconds = 0;                // generating one token for each row
};

infer::GenerateRequest made_request(const models::Model& model, std::int64_t prompts, std::int64_t length,
                                    std::int64_t new_tokens) {
  const RandomTokens tokens(prompts * length, model.vocab);
  infer::GenerateRequest request;
  request.max_new_tokens = new_tokens;
  for (std::int64_t p = 0; p < prompts; ++p) {
    request.prompts.emplace_back(static_cast<std::size_t>(length));
    tokens.read(p * length, length, request.prompts.back().data());
  }
  return request;
}

infer::InferenceOptions options_for(plan::RunSpec spec, const infer::GenerateRequest& request) {
  const infer::GenerationShape shape = infer::generation_shape(request, spec.batch.micro_batch);
  spec.tokens = shape.tokens;
  spec.cache_tokens = shape.cache_tokens;
  return {.run = spec};
}

/// Initializes the parameters and generates two tokens.
void warm_up(infer::Inference& run, infer::GenerateRequest request) {
  run.initialize(42);
  request.max_new_tokens = std::min<std::int64_t>(2, request.max_new_tokens);
  (void)run.generate(request);
}

GenerateTimes measure_generation(World& world, infer::Inference& run, const infer::GenerateRequest& request) {
  GenerateTimes times;
  times.report = run.generate(request);
  times.prompt_rate =
      static_cast<double>(world.sum(times.report.prefill.tokens)) / std::max(times.report.prefill.seconds, 1e-12);
  times.pass_seconds =
      times.report.decode.seconds / static_cast<double>(std::max<std::int64_t>(times.report.decode.passes, 1));
  times.next_rate =
      static_cast<double>(request.prompts.size()) / std::max(times.pass_seconds, 1e-12);  // no row ends early
  return times;
}

/// Bytes that a rank reads to generate one token for each row, halfway: matmul weights once, keys and values of each
/// row.
double bytes_of_pass(const models::Model& model, std::int64_t rows, std::int64_t prompt, std::int64_t new_tokens) {
  double cache = 0;
  for (const auto& module : model.modules)
    cache += static_cast<double>(module->cache_bytes({rows, prompt + new_tokens / 2}, model.dtype));
  return cache + static_cast<double>(model.num_matmul_params()) * static_cast<double>(size_of(model.dtype));
}

/// Medians over the turns; the rates of `times` are of its median pass.
struct CachedTimes {
  GenerateTimes times;
  double read = 0;   // GB/s of reading memory over all ranks; 0: unknown
  double share = 0;  // of reading, that the bytes of a pass reach
};

GenerateReference generate_reference(World& world, DType dtype, int repeats) {
  if (world.device() != host_device) return {true, gpu_peak(world, dtype).flops() / 1e9, gpu_memory_rate(world) / 1e9};
  return {.gemm = measure_gemm_on_all_ranks(world, {2048, 2048, 2048}, std::min(repeats, 3))};
}

struct CachedArgs {
  const GenerateReference* machine = nullptr;
  double pass_bytes = 0;
  int repeats = 0;
};

CachedTimes measure_cached(World& world, const plan::RunSpec& spec, const infer::GenerateRequest& request,
                           const CachedArgs& args) {
  infer::Inference run(world, options_for(spec, request));
  warm_up(run, request);
  std::vector<GenerateTimes> times;
  std::vector<double> reads, shares;
  for (int turn = 0; turn < bench_turns; ++turn) {
    world.barrier();
    if (args.machine->on_gpu) {
      reads.push_back(args.machine->memory);
    } else {
      const double own = kernels::measure_read_bandwidth(
          std::max(least_read, static_cast<std::size_t>(args.pass_bytes)), args.repeats);
      reads.push_back(1e-3 * static_cast<double>(world.sum(static_cast<std::int64_t>(1e3 * own))));
    }
    times.push_back(measure_generation(world, run, request));
    const double rate = 1e-9 * world.size() * args.pass_bytes / times.back().pass_seconds;
    shares.push_back(reads.back() > 0 ? rate / reads.back() : 0);
  }
  std::sort(times.begin(), times.end(),
            [](const GenerateTimes& a, const GenerateTimes& b) { return a.pass_seconds < b.pass_seconds; });
  return {std::move(times[bench_turns / 2]), median(reads), median(shares)};
}

}  // namespace

void bench_generate_command(const Call& call, World& world) {
  const Options& options = call.options();
  const int threads = set_rank_threads(options, world).threads;
  const ModelConfig config = read_model_config(options, &world);
  models::Model model = models::make(config.text, config.path, precision_of(options).compute);
  for (ParamSpec& param : model.params) param.storage_dtype = model.dtype;  // as `tessera generate`
  const std::int64_t rows = options.optional_integer("per_device_eval_batch_size").value_or(bench_rows);
  const std::int64_t new_tokens = options.optional_integer("max_new_tokens").value_or(bench_new_tokens);
  const std::int64_t length = options.has("max_length") ? sequence_length(options, model)
                                                        : std::min(bench_prompt, model.max_tokens - new_tokens + 1);
  if (length < 1 || length + new_tokens - 1 > model.max_tokens)
    throw options.refuse("max_new_tokens",
                         strfmt("prompts of %ld tokens and %ld new ones are more than the model's %ld positions",
                                length, new_tokens, model.max_tokens),
                         "Lower it, or --max_length (the length of the prompts)");
  const auto repeats = static_cast<int>(options.integer("bench_repeats"));
  const plan::RunSpec spec =
      inference_spec(options, model, world.size(), world.topology(), plan::Purpose::generate, rows);
  const infer::GenerateRequest request = made_request(model, rows * world.size(), length, new_tokens);

  const GenerateReference machine = generate_reference(world, model.dtype, repeats);
  world.barrier();
  const double pass_bytes = bytes_of_pass(model, rows, length, new_tokens);
  const CachedTimes in_turns = measure_cached(world, spec, request, {&machine, pass_bytes, repeats});
  const GenerateTimes& cached = in_turns.times;
  const double read = in_turns.read;

  const double flops = model.train_flops_per_token(length) / 3 * cached.prompt_rate / 1e9;
  const double bytes = static_cast<double>(world.size()) * pass_bytes / cached.pass_seconds / 1e9;
  const auto share_of = [](double part, double all) { return all > 0 ? part / all : 0; };
  if (options.flag("json")) {
    return log::info(nlohmann::ordered_json{
        {"prompt_tokens_per_second", cached.prompt_rate},
        {"prompt_gflops", flops},
        {machine.on_gpu ? "published_gflops" : "sgemm_gflops", machine.gemm},
        {"tokens_per_second", cached.next_rate},
        {"pass_s", cached.pass_seconds},
        {"passes", cached.report.decode.passes},
        {"replayed_passes", cached.report.decode.replayed},
        {"read_gbps", bytes},
        {"memory_gbps", read},
        {"share_of_memory",
         in_turns.share}}.dump(2));
  }
  log::info(version_line());
  log::info(strfmt(
      "model     %s | %s parameters in %s | %ld rows a rank, prompts of %ld, %ld new tokens | %d ranks, %d threads "
      "each | %s",
      config.path.c_str(), human_count(model.num_params()).c_str(), name_of(model.dtype), rows, length, new_tokens,
      world.size(), threads, spec.strategy.name.c_str()));
  log::info(machine.on_gpu
                ? strfmt("machine   %s: %.1f TFLOP/s in %s, memory %.1f GB/s, as published, over all ranks",
                         device_name(world.device()).c_str(), machine.gemm / 1e3, name_of(model.dtype), read)
                : strfmt("machine   sgemm %.1f GFLOP/s, memory read at %.1f GB/s, over all ranks", machine.gemm, read));
  if (machine.on_gpu && (machine.gemm == 0 || read == 0))
    log::info("          no published figures of this GPU are known: the shares below are 0");
  log::info(strfmt("prompts   %s tok/s | %.1f GFLOP/s, %.1f%% of %s", human_count(cached.prompt_rate).c_str(), flops,
                   100 * share_of(flops, machine.gemm), machine.gemm_name()));
  log::info(strfmt("then      %s tok/s, %.2f ms a pass | parameters, keys and values at %.1f GB/s, %.1f%% of memory",
                   human_count(cached.next_rate).c_str(), 1e3 * cached.pass_seconds, bytes, 100 * in_turns.share));
}

}  // namespace tessera::jobs
