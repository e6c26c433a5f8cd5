// SPDX-License-Identifier: Apache-2.0
// `tessera bench attention`: causal attention in fp32, bf16 and fp16, beside the GEMM that multiplies as its tiles do.
#include <array>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "jobs/bench/tools.hpp"
#include "jobs/cli/session/gemm_peak.hpp"
#include "jobs/cli/session/resources.hpp"
#include "jobs/cli/session/versions.hpp"
#include "kernels/attention.hpp"
#include "runtime/base/log.hpp"

namespace tessera::jobs {

namespace {

constexpr std::array<kernels::AttentionShape, 3> attention_shapes{
    {{.batch = 8, .tokens = 256, .heads = 6, .kv_heads = 6, .head_dim = 64},
     {.batch = 2, .tokens = 1024, .heads = 12, .kv_heads = 12, .head_dim = 64},
     {.batch = 1, .tokens = 2048, .heads = 16, .kv_heads = 4, .head_dim = 128}}};

struct Seconds {
  double forward = std::numeric_limits<double>::infinity(), backward = forward;
};

/// The best of `repeats` after one to warm up, of the slowest rank.
Seconds attention_seconds(World& world, const kernels::AttentionShape& s, DType dtype, int repeats) {
  const std::int64_t rows = s.batch * s.tokens;
  const std::int64_t width = s.heads * s.head_dim, qkv_width = width + 2 * s.kv_heads * s.head_dim;
  const Mapping qkv_numbers = random_numbers(dtype, rows * qkv_width),
                dout_numbers = random_numbers(dtype, rows * width), out_memory = random_numbers(dtype, rows * width),
                dqkv_memory = random_numbers(dtype, rows * qkv_width),
                lse_memory = random_numbers(DType::f32, rows * s.heads);
  const TensorView qkv{qkv_numbers.data(), dtype, Shape{s.batch, s.tokens, qkv_width}},
      dout{dout_numbers.data(), dtype, Shape{s.batch, s.tokens, width}},
      out{out_memory.data(), dtype, Shape{s.batch, s.tokens, width}},
      dqkv{dqkv_memory.data(), dtype, Shape{s.batch, s.tokens, qkv_width}},
      lse{lse_memory.data(), DType::f32, Shape{s.batch, s.heads, s.tokens}};
  const std::size_t bytes =
      std::max(kernels::attention_forward_workspace(s, dtype), kernels::attention_backward_workspace(s, dtype));
  const Mapping scratch = Mapping::anonymous(bytes, "tessera bench");
  const TensorView workspace{scratch.data(), DType::u8, Shape{static_cast<std::int64_t>(bytes)}};
  const kernels::AttentionArgs of{
      .shape = s, .qkv = kernels::fused_qkv(s, qkv), .scale = 1 / std::sqrt(static_cast<double>(s.head_dim))};
  Seconds best;
  const auto seconds_of = [](const auto& call) {
    const auto begin = std::chrono::steady_clock::now();
    call();
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  };
  for (int i = 0; i <= repeats; ++i) {
    world.barrier();
    const double forward = seconds_of(
        [&] { kernels::attention_forward({.of = of, .out = out, .lse = lse, .workspace = workspace}, host_stream); });
    const double backward = seconds_of([&] {
      kernels::attention_backward(
          {.of = of, .dout = dout, .out = out, .lse = lse, .dqkv = kernels::fused_qkv(s, dqkv), .workspace = workspace},
          host_stream);
    });
    if (i > 0) best = {std::min(best.forward, forward), std::min(best.backward, backward)};
  }
  const auto slowest = [&](double seconds) {
    return 1e-9 * static_cast<double>(world.max(std::llround(1e9 * seconds)));
  };
  return {slowest(best.forward), slowest(best.backward)};
}

}  // namespace

void bench_attention_command(const Call& call, World& world) {
  const Options& options = call.options();
  const int threads = set_rank_threads(options, world).threads;
  const auto repeats = static_cast<int>(options.integer("bench_repeats"));
  const double fp32 = measure_gemm_on_all_ranks(world, {1024, 1024, 1024}, repeats),
               bf16 = measure_gemm_on_all_ranks(world, {1024, 1024, 1024}, repeats, DType::bf16);
  nlohmann::ordered_json json{
      {"ranks", world.size()}, {"threads_per_rank", threads}, {"gemm_gflops", {{"fp32", fp32}, {"bf16", bf16}}}};
  if (!options.flag("json")) {
    log::info(version_line());
    log::info(
        strfmt("Causal attention, %d ranks at once, %d threads each, best of %d; GFLOP/s of all ranks, of the lower "
               "triangle alone. GEMM of 1024^3: fp32 %.1f GFLOP/s, bf16 %.1f",
               world.size(), threads, repeats, fp32, bf16));
    log::info(strfmt("%6s %6s %14s %6s %12s %10s %12s %10s %12s %12s", "B", "T", "heads (K/V)", "of", "", "forward ms",
                     "GFLOP/s", "backward ms", "GFLOP/s", "fp32's time"));
  }
  for (const kernels::AttentionShape& s : attention_shapes) {
    double fp32_seconds = 0;
    for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
      const Seconds seconds = attention_seconds(world, s, dtype, repeats);
      // Forward: two GEMMs of T·T/2·d a head, of two FLOPs each; backward five.
      const double flops = 1e-9 * world.size() * 2.0 * static_cast<double>(s.batch * s.heads * s.head_dim) *
                           static_cast<double>(s.tokens) * static_cast<double>(s.tokens);
      const double sum = seconds.forward + seconds.backward;
      if (dtype == DType::f32) fp32_seconds = sum;
      const double forward = flops / seconds.forward, backward = 2.5 * flops / seconds.backward;
      json["attention"].push_back({{"batch", s.batch},
                                   {"tokens", s.tokens},
                                   {"heads", s.heads},
                                   {"kv_heads", s.kv_heads},
                                   {"head_dim", s.head_dim},
                                   {"dtype", name_of(dtype)},
                                   {"forward_seconds", seconds.forward},
                                   {"backward_seconds", seconds.backward},
                                   {"forward_gflops", forward},
                                   {"backward_gflops", backward}});
      if (!options.flag("json"))
        log::info(strfmt("%6ld %6ld %14s %6ld %12s %10.2f %12.1f %10.2f %12.1f %12.2f", s.batch, s.tokens,
                         strfmt("%ld (%ld)", s.heads, s.kv_heads).c_str(), s.head_dim, name_of(dtype),
                         1e3 * seconds.forward, forward, 1e3 * seconds.backward, backward, sum / fp32_seconds));
    }
  }
  if (options.flag("json")) log::info(json.dump(2));
}

}  // namespace tessera::jobs
