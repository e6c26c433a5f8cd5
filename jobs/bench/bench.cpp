// SPDX-License-Identifier: Apache-2.0
// `tessera bench gemm`, and the choice of the other benchmarks.
#include "jobs/bench/bench.hpp"

#include <algorithm>
#include <initializer_list>
#include <nlohmann/json.hpp>

#include "jobs/cli/session/gemm_peak.hpp"
#include "jobs/cli/session/host_info.hpp"
#include "jobs/cli/session/resources.hpp"
#include "jobs/cli/session/setup.hpp"
#include "jobs/cli/session/versions.hpp"
#include "kernels/threads.hpp"
#include "runtime/base/log.hpp"

namespace tessera::jobs {

namespace {

void bench_gemm(const Call& call, World& world) {
  const Options& options = call.options();
  const int threads = set_rank_threads(call.options(), world).threads;
  std::vector<GemmShape> shapes{{512, 512, 512}, {1024, 1024, 1024}, {2048, 2048, 2048}};
  if (options.has("model") || options.has("shape")) {
    const ModelConfig config = read_model_config(options, &world);
    const models::Model model = models::make(config.text, config.path);
    shapes = gemm_shapes(model, batch_of(options, world.size()).micro_batch * sequence_length(options, model));
  }
  const kernels::Gemm16Bit bf16 = kernels::gemm_16bit(DType::bf16);
  nlohmann::ordered_json json;
  json["ranks"] = world.size(), json["threads_per_rank"] = threads, json["bf16_kernel"] = bf16.name,
  json["bf16_passed_over"] = bf16.skipped;
  if (!options.flag("json")) {
    log::info(version_line());
    log::info(strfmt("GEMM in GFLOP/s, %d ranks at once, %d threads each, best of %ld; bf16 by %s, fp32 by %s",
                     world.size(), threads, options.integer("bench_repeats"), bf16.name.c_str(),
                     kernels::blas_version().c_str()));
    if (!bf16.skipped.empty()) log::info(bf16.skipped);
    log::info(strfmt("%8s %8s %8s %14s %14s %10s", "m", "n", "k", "fp32", "bf16", "bf16/fp32"));
  }
  for (const GemmShape& shape : shapes) {
    const auto repeats = static_cast<int>(options.integer("bench_repeats"));
    const double speed = measure_gemm_on_all_ranks(world, shape, repeats),
                 bf16_speed = measure_gemm_on_all_ranks(world, shape, repeats, DType::bf16);
    json["shapes"].push_back(
        {{"m", shape.m}, {"n", shape.n}, {"k", shape.k}, {"gflops", speed}, {"bf16_gflops", bf16_speed}});
    if (!options.flag("json")) {
      log::info(strfmt("%8ld %8ld %8ld %14.1f %14.1f %10.2f", shape.m, shape.n, shape.k, speed, bf16_speed,
                       bf16_speed / speed));
    }
  }
  if (options.flag("json")) log::info(json.dump(2));
}

/// Some benchmarks have kernels, memory or transports of the host on both sides, whatever a run of the same options
/// uses.
void require_host(const std::string& what, const Options& options, World& world) {
  const auto is_one_of = [&](std::initializer_list<const char*> names) {
    return std::ranges::find(names, what) != names.end();
  };
  if (world.device() == host_device || !is_one_of({"gemm", "kernels", "attention", "dequantize", "collectives"}))
    return;
  // Collectives of a device's communicator cannot read the host buffers of this benchmark.
  if (options.text("backend") == "cuda" || what == "collectives")
    throw options.refuse("backend", "bench " + what + " measures the CPU, and this run is on a GPU",
                         "Give --backend cpu");
  if (!options.flag("json")) log::info("device    the CPU, which is all that bench " + what + " measures");
}

}  // namespace

void bench_command(const Call& call, World& world) {
  const std::vector<std::string>& operands = call.invocation.operands;
  const std::string what = operands.empty() ? "" : operands[0];
  require_host(what, call.options(), world);
  if (what == "gemm") return bench_gemm(call, world);
  if (what == "collectives") return bench_collectives_command(call, world);
  if (what == "dequantize") return bench_dequantize_command(call, world);
  if (what == "kernels") return bench_kernels_command(call, world);
  if (what == "attention") return bench_attention_command(call, world);
  if (what == "step") return bench_step_command(call, world);
  if (what == "strategies") return bench_strategies_command(call, world);
  if (what == "compression") return bench_compression_command(call, world);
  if (what == "generate") return bench_generate_command(call, world);
  if (what == "tokenizer") return bench_tokenizer_command(call, world);
  if (what == "io") return bench_io_command(call, world);
  if (what == "scratch") return bench_scratch_command(call, world);
  if (what == "convert") return bench_convert_command(call, world);
  throw Error(ExitCode::usage, what.empty() ? "bench needs a subcommand" : "bench does not know \"" + what + "\"",
              "command line",
              "tessera bench gemm|kernels|attention|collectives|dequantize|step|strategies|compression|io|scratch|"
              "convert|generate|tokenizer");
}

}  // namespace tessera::jobs
