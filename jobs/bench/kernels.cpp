// SPDX-License-Identifier: Apache-2.0
// `tessera bench kernels`: memory-bound kernels in fp32, bf16 and fp16, alternately with copying as much.
#include <array>
#include <cmath>
#include <functional>
#include <limits>
#include <nlohmann/json.hpp>

#include "jobs/bench/tools.hpp"
#include "jobs/cli/session/resources.hpp"
#include "jobs/cli/session/versions.hpp"
#include "kernels/bandwidth.hpp"
#include "kernels/bias.hpp"
#include "kernels/dropout.hpp"
#include "kernels/embedding.hpp"
#include "kernels/gelu.hpp"
#include "kernels/layer_norm.hpp"
#include "kernels/moe.hpp"
#include "kernels/rms_norm.hpp"
#include "kernels/rope.hpp"
#include "kernels/swiglu.hpp"
#include "runtime/base/log.hpp"

namespace tessera::jobs {

namespace {

constexpr std::int64_t bench_channels = 1024, bench_head = 64;
constexpr std::uint64_t operand_bytes = std::uint64_t{8} << 20;
constexpr int most_arrays = 5;

struct BenchedKernel {
  const char* name;
  int arrays;  // of tokens × channels numbers, read or written; one that is read and written counts twice
  std::function<void()> call;
};

/// The operands of all kernels, in one type: activations, and the small ones.
class Operands {
 public:
  Operands(DType dtype, std::int64_t tokens) : dtype_(dtype), tokens_(tokens) {
    for (auto& array : arrays_) array = random_numbers(dtype, tokens_ * bench_channels);
    for (auto& vector : vectors_) vector = random_numbers(dtype, bench_channels);
    for (auto& numbers : floats_) numbers.assign(static_cast<std::size_t>(tokens_ * bench_head), 0.5F);
    // The rows in another order, without neighbours (7919 is a prime).
    for (std::int64_t i = 0; i < tokens_; ++i) order_.push_back(static_cast<std::int32_t>(i * 7919 % tokens_));
    workspace_.resize(std::max(kernels::layer_norm_backward_workspace(bench_channels, dtype),
                               kernels::rms_norm_backward_workspace(bench_channels, dtype)));
  }
  [[nodiscard]] BenchedKernel copy() {
    const TensorView x = matrix(0), y = matrix(1);
    return {"copy", 2, [=] {
              kernels::copy_words(static_cast<const std::uint64_t*>(x.data), static_cast<std::uint64_t*>(y.data),
                                  static_cast<std::int64_t>(x.nbytes() / sizeof(std::uint64_t)));
            }};
  }
  [[nodiscard]] std::vector<BenchedKernel> kernels() {
    const TensorView x = matrix(0), y = matrix(1), z = matrix(2), u = matrix(3), v = matrix(4), weight = vector(0),
                     bias = vector(1), dweight = vector(2), dbias = vector(3), mean = statistic(0), rstd = statistic(1),
                     workspace{workspace_.data(), DType::f32,
                               Shape{static_cast<std::int64_t>(workspace_.size() / sizeof(float))}};
    const TensorView table{floats_[2].data(), Shape{tokens_, bench_head}}, order{order_.data(), Shape{tokens_}};
    const kernels::Dispatch dispatch{.slots = order, .rows = order, .offsets = {}};  // top-1 routing
    const TensorView ids{order_.data(), Shape{1, tokens_}}, embedded{y.data, dtype_, Shape{1, tokens_, bench_channels}};
    return {
        {"gelu", 2, [=] { kernels::gelu_forward({.x = x, .y = y}, host_stream); }},
        {"gelu, backward", 3, [=] { kernels::gelu_backward({.x = x, .dy = y, .dx = z}, host_stream); }},
        {"swiglu", 3, [=] { kernels::swiglu_forward({.gate = x, .up = y, .y = z}, host_stream); }},
        {"swiglu, backward", 5,
         [=] { kernels::swiglu_backward({.gate = x, .up = y, .dy = z, .dgate = u, .dup = v}, host_stream); }},
        {"add", 3, [=] { kernels::add({.x = x, .y = y}, host_stream); }},
        {"bias, backward", 1, [=] { kernels::bias_backward({.dy = x, .dbias = dbias}, host_stream); }},
        {"rope", 2, [=] { kernels::rope({.x = y, .head_dim = bench_head, .table = table}, host_stream); }},
        {"dropout", 2, [=] { kernels::dropout({.x = x, .y = y, .p = 0.1, .key = 1}, host_stream); }},
        {"embedding", 2,
         [=] { kernels::embedding_forward({.ids = ids, .tokens_table = x, .y = embedded}, host_stream); }},
        {"moe, gather_rows", 2, [=] { kernels::gather_rows(x, dispatch, y, host_stream); }},
        {"moe, combine_rows", 2, [=] { kernels::combine_rows({.x = x, .dispatch = dispatch, .y = y}, host_stream); }},
        {"layer_norm", 2,
         [=] {
           kernels::layer_norm_forward({.x = x, .weight = weight, .bias = bias, .y = y, .mean = mean, .rstd = rstd},
                                       host_stream);
         }},
        {"layer_norm, backward", 4,
         [=] {
           kernels::layer_norm_backward({.dy = y,
                                         .x = x,
                                         .weight = weight,
                                         .mean = mean,
                                         .rstd = rstd,
                                         .dx = z,
                                         .add_to_dx = true,
                                         .dweight = dweight,
                                         .dbias = dbias,
                                         .workspace = workspace},
                                        host_stream);
         }},
        {"rms_norm", 2,
         [=] { kernels::rms_norm_forward({.x = x, .weight = weight, .y = y, .rstd = rstd}, host_stream); }},
        {"rms_norm, backward", 4,
         [=] {
           kernels::rms_norm_backward({.dy = y,
                                       .x = x,
                                       .weight = weight,
                                       .rstd = rstd,
                                       .dx = z,
                                       .add_to_dx = true,
                                       .dweight = dweight,
                                       .workspace = workspace},
                                      host_stream);
         }},
    };
  }

 private:
  [[nodiscard]] TensorView matrix(std::size_t i) { return {arrays_[i].data(), dtype_, Shape{tokens_, bench_channels}}; }
  [[nodiscard]] TensorView vector(std::size_t i) { return {vectors_[i].data(), dtype_, Shape{bench_channels}}; }
  [[nodiscard]] TensorView statistic(std::size_t i) { return {floats_[i].data(), Shape{tokens_}}; }

  DType dtype_;
  std::int64_t tokens_;
  std::array<Mapping, most_arrays> arrays_;
  std::array<Mapping, 4> vectors_;
  std::array<std::vector<float>, 3> floats_;  // mean, rstd, table of rope
  std::vector<std::int32_t> order_;
  std::vector<std::byte> workspace_;
};

struct KernelTimes {
  double seconds = std::numeric_limits<double>::infinity();       // of the kernel, the best
  double copy_seconds = std::numeric_limits<double>::infinity();  // the best
  double share = 0;  // the kernel's bytes a second over the copy's of the same turn, the median
};

/// Collective: copying and the kernel alternately, on all ranks at once; each takes as long as its slowest rank.
KernelTimes time_alternately(World& world, const BenchedKernel& copy, const BenchedKernel& kernel, int repeats) {
  KernelTimes times;
  std::vector<double> shares;
  for (int i = 0; i < repeats + 1; ++i) {
    const double copied = timed(world, copy.call), computed = timed(world, kernel.call);
    if (i == 0) continue;  // to warm up
    times.seconds = std::min(times.seconds, computed);
    times.copy_seconds = std::min(times.copy_seconds, copied);
    shares.push_back(copied / copy.arrays * kernel.arrays / computed);
  }
  times.share = median(shares);
  return times;
}

}  // namespace

void bench_kernels_command(const Call& call, World& world) {
  const Options& options = call.options();
  const int threads = set_rank_threads(options, world).threads;
  const auto repeats = static_cast<int>(options.integer("bench_repeats"));
  const std::uint64_t size = options.given("size") ? options.bytes("size") : operand_bytes;
  nlohmann::ordered_json json{{"ranks", world.size()}, {"threads_per_rank", threads}};
  if (!options.flag("json")) {
    log::info(version_line());
    log::info(strfmt(
        "Memory-bound kernels, operands of %.1f MiB in rows of %ld, %d ranks at once, %d threads each, best of %d. "
        "Bytes: each operand once for reading and once for writing. Share: of copying as large operands, alternately "
        "with "
        "the kernel, the median",
        static_cast<double>(size) / (1 << 20), bench_channels, world.size(), threads, repeats));
    log::info(strfmt("%6s %-22s %12s %14s %14s %10s", "", "", "ns/element", "GB/s of a rank", "copying", "share"));
  }
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
    const std::int64_t tokens = std::max<std::int64_t>(
        1, static_cast<std::int64_t>(size / (static_cast<std::uint64_t>(bench_channels) * size_of(dtype))));
    Operands operands(dtype, tokens);
    const std::int64_t elements = tokens * bench_channels;
    const auto bytes = static_cast<double>(elements) * static_cast<double>(size_of(dtype));
    const BenchedKernel copy = operands.copy();
    for (const BenchedKernel& kernel : operands.kernels()) {
      const KernelTimes times = time_alternately(world, copy, kernel, repeats);
      const double rate = 1e-9 * kernel.arrays * bytes / times.seconds,
                   copy_rate = 1e-9 * copy.arrays * bytes / times.copy_seconds,
                   each = 1e9 * times.seconds / static_cast<double>(elements);
      json["kernels"].push_back({{"dtype", name_of(dtype)},
                                 {"name", kernel.name},
                                 {"ns_per_element", each},
                                 {"gb_per_s", rate},
                                 {"copy_gb_per_s", copy_rate},
                                 {"share_of_copy", times.share}});
      if (!options.flag("json"))
        log::info(strfmt("%6s %-22s %12.3f %14.1f %14.1f %8.0f %%", name_of(dtype), kernel.name, each, rate, copy_rate,
                         100 * times.share));
    }
  }
  if (options.flag("json")) log::info(json.dump(2));
}

}  // namespace tessera::jobs
