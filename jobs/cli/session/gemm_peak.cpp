// SPDX-License-Identifier: Apache-2.0
#include "jobs/cli/session/gemm_peak.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <utility>

#include "kernels/gemm.hpp"
#include "kernels/threads.hpp"
#include "runtime/base/arena.hpp"
#include "runtime/base/device_info.hpp"
#include "runtime/base/half.hpp"
#include "runtime/base/log.hpp"
#include "runtime/base/rng.hpp"
#include "runtime/base/timed_event.hpp"
#include "runtime/base/transfer.hpp"
#include "runtime/plan/gpu_specs.hpp"

namespace tessera::jobs {

namespace {

/// Fills device memory with random numbers in [-1, 1).
template <class T>
void fill_random(Device device, std::byte* to, std::int64_t numel, std::uint64_t seed) {
  std::vector<T> staging(host_staging_bytes / sizeof(T));
  for (std::int64_t first = 0; first < numel; first += static_cast<std::int64_t>(staging.size())) {
    const auto count = std::min(static_cast<std::int64_t>(staging.size()), numel - first);
    for (std::int64_t i = 0; i < count; ++i)
      staging[static_cast<std::size_t>(i)] =
          T(static_cast<float>(2 * uniform(seed, static_cast<std::uint64_t>(first + i)) - 1));
    copy_now(device, to + static_cast<std::size_t>(first) * sizeof(T), staging.data(),
             static_cast<std::size_t>(count) * sizeof(T));
  }
}

void fill_random(DType dtype, Device device, std::byte* to, std::int64_t numel, std::uint64_t seed) {
  if (dtype == DType::bf16) fill_random<bf16>(device, to, numel, seed);
  else if (dtype == DType::f16) fill_random<f16>(device, to, numel, seed);
  else fill_random<float>(device, to, numel, seed);
}

constexpr std::int64_t head_columns = 4096;  // of the vocabulary, multiplied at once

/// The GEMM of `rows` tokens with a parameter; none with one that is not multiplied: biases, norms, positions. A table
/// of the vocabulary's size is multiplied in the head, transposed and in chunks.
std::optional<GemmShape> gemm_with(const ParamSpec& param, const models::Model& model, std::int64_t rows) {
  const Shape matrix = param.matrix_shape();
  if (matrix.rank() != 2) return std::nullopt;
  const std::int64_t a = matrix[0], b = matrix[1];
  if (a == model.max_tokens && a != model.vocab) return std::nullopt;
  if (a == model.vocab) return GemmShape{rows, std::min(a, head_columns), b};
  return GemmShape{rows, b, a};
}

}  // namespace

std::vector<GemmShape> gemm_shapes(const models::Model& model, std::int64_t rows) {
  std::vector<GemmShape> shapes{{2048, 2048, 2048}};
  for (const ParamSpec& param : model.params)
    if (const auto shape = gemm_with(param, model, rows))
      if (std::ranges::find(shapes, *shape) == shapes.end()) shapes.push_back(*shape);
  return shapes;
}

double seconds_of_gemms_alone(World& world, const models::Model& model, std::int64_t rows, int repeats) {
  if (model.dtype != DType::f32 && model.dtype != DType::bf16) return 0;
  std::vector<std::pair<kernels::MeasuredGemm, double>> measured;
  const auto seconds_of = [&](kernels::MeasuredGemm gemm) {
    gemm.dtype = model.dtype;
    const auto known = std::ranges::find(measured, gemm, &std::pair<kernels::MeasuredGemm, double>::first);
    if (known != measured.end()) return known->second;
    world.barrier();
    const double rate = 1e9 * kernels::measure_gemm(gemm, repeats),
                 mine = 2.0 * static_cast<double>(gemm.m) * static_cast<double>(gemm.n * gemm.k) / rate;
    return measured.emplace_back(gemm, 1e-9 * static_cast<double>(world.max(std::llround(1e9 * mine)))).second;
  };
  double total = 0, head = 0;
  for (const ParamSpec& param : model.params) {
    const std::optional<GemmShape> shape = gemm_with(param, model, rows);
    if (!shape) continue;
    const auto [m, n, k] = *shape;
    // A matrix (r, c) is multiplied as it is stored and transposed, once each: of (out, in) the first gives the
    // gradient of the input, of (in, out) the output. The head's shape is that of its output, logits in fp32.
    const bool is_table = param.matrix_shape()[0] == model.vocab, is_16bit = model.dtype != DType::f32;
    const std::int64_t r = is_table ? n : k, c = is_table ? k : n;
    double once = seconds_of({.m = m, .n = c, .k = r}) +
                  seconds_of({.m = m, .n = r, .k = c, .trans_b = true, .fp32_result = is_table && is_16bit});
    if (param.trainable) once += seconds_of({.m = r, .n = c, .k = m, .trans_a = true, .fp32_result = is_16bit});
    if (is_table) head = once * static_cast<double>(model.vocab) / static_cast<double>(n);
    else total += once;
  }
  return total + head;  // of two tables one is looked up, not multiplied
}

double measure_gemm_on_all_ranks(World& world, const GemmShape& shape, int repeats, DType dtype) {
  world.barrier();
  const double mine = kernels::measure_gemm({.m = shape.m, .n = shape.n, .k = shape.k, .dtype = dtype}, repeats);
  world.barrier();
  return static_cast<double>(world.sum(std::llround(mine * 1e6))) / 1e6;
}

double measure_device_gemm_on_all_ranks(World& world, DType dtype, std::int64_t edge, int repeats) {
  const Device device = world.device();
  const auto bytes = static_cast<std::size_t>(edge * edge) * size_of(dtype);
  const auto slot = [&](const char* name) { return ArenaSlot{.name = name, .bytes = bytes, .memory = Memory::device}; };
  std::optional<Arena> arena;
  Stream stream("gemm peak", Stream::Mode::immediate, device, Priority::normal);
  const auto multiply = [&] {
    const auto matrix = [&](const char* name) { return TensorView(arena->data(name), dtype, {edge, edge}, device); };
    kernels::gemm({.a = matrix("a"), .b = matrix("b"), .c = matrix("c")}, stream.view());
  };
  TimedEvent start(device), end(device);
  world.run_and_agree([&] {
    arena.emplace(std::vector<ArenaSlot>{slot("a"), slot("b"), slot("c")}, Arena::Share{}, device);
    for (const char* name : {"a", "b"})
      fill_random(dtype, device, arena->data(name), edge * edge, static_cast<std::uint64_t>(name[0]));
  });
  double best = 0;
  world.run_and_agree([&] {
    for (int i = 0; i < repeats + 1; ++i) {
      multiply();  // the device is busy when the timed one is given to it
      start.record(stream);
      multiply();
      end.record(stream);
      end.wait();
      if (i > 0)  // the first loads and chooses the kernel
        best = std::max(best, 2e-9 * std::pow(static_cast<double>(edge), 3) / TimedEvent::seconds(start, end));
    }
  });
  return static_cast<double>(world.sum(std::llround(best * 1e6))) / 1e6;
}

namespace {

/// FLOP/s over all ranks, in about `seconds`: of the GEMM shortened until it takes a few milliseconds, because the best
/// of many is found on a busy machine too, whose scheduler takes turns as long.
double quick_gemm(World& world, const GemmShape& full, DType dtype, double seconds) {
  constexpr double least_seconds = 3e-3;
  constexpr int most_repeats = 16;
  for (std::int64_t edge = 512;; edge *= 2) {
    const GemmShape shape{std::min(full.m, edge), std::min(full.n, edge), std::min(full.k, edge)};
    const double rate = 1e9 * measure_gemm_on_all_ranks(world, shape, 3, dtype);  // the first warms up
    const double once = 2.0 * static_cast<double>(shape.m * shape.n * shape.k) * world.size() / rate;
    const bool is_full = shape.m == full.m && shape.n == full.n && shape.k == full.k;
    if (once < least_seconds && !is_full) continue;  // the same on all ranks: the rate is of all
    const auto repeats = static_cast<int>(std::clamp(seconds / once - 3, 1.0, static_cast<double>(most_repeats)));
    return std::max(rate, 1e9 * measure_gemm_on_all_ranks(world, shape, repeats, dtype));
  }
}

}  // namespace

ComputePeak cpu_peak(World& world, const models::Model& model, std::int64_t rows, double seconds) {
  GemmShape largest{512, 512, 512};
  for (const GemmShape& shape : gemm_shapes(model, rows)) {
    const GemmShape cut{std::min<std::int64_t>(shape.m, 1024), std::min<std::int64_t>(shape.n, 2048),
                        std::min<std::int64_t>(shape.k, 1024)};
    if (cut.m * cut.n * cut.k > largest.m * largest.n * largest.k) largest = cut;
  }
  const bool bf16 = model.dtype == DType::bf16;
  const auto measure = [&world, largest, bf16, seconds] {
    const double fp32 = quick_gemm(world, largest, DType::f32, seconds);
    return bf16 ? std::max(fp32, quick_gemm(world, largest, DType::bf16, seconds)) : fp32;
  };
  return ComputePeak(measure(), measure);
}

ComputePeak gpu_peak(World& world, DType dtype) {
  const std::string name = device_name(world.device());
  const plan::GpuSpec* const gpu = plan::find_gpu_spec(name);
  const std::vector<std::string> names = world.gather(gpu == nullptr ? name : "");
  if (world.max(gpu == nullptr ? 1 : 0) > 0) {
    for (const std::string& unknown : names)
      if (!unknown.empty()) return ComputePeak::unknown("no published peak of \"" + unknown + "\" is known");
    return ComputePeak::unknown("no published peak of a rank's GPU is known");
  }
  return ComputePeak(static_cast<double>(world.sum(std::llround(gpu->flops(dtype) * 1e-6))) * 1e6);
}

double gpu_memory_rate(World& world) {
  const plan::GpuSpec* const gpu = plan::find_gpu_spec(device_name(world.device()));
  if (world.max(gpu == nullptr ? 1 : 0) > 0) return 0;
  return static_cast<double>(world.sum(std::llround(gpu->memory_bytes_s * 1e-6 / world.ranks_on_device()))) * 1e6;
}

std::optional<double> ComputePeak::mfu(World& world, double flops, double seconds) {
  if (flops_ <= 0) return std::nullopt;
  const double reached = flops / std::max(seconds, 1e-12);
  if (measure_) {
    const auto fastest = static_cast<double>(world.max(std::llround(reached)));
    if (fastest > flops_) {
      const double before = flops_;
      flops_ = std::max(fastest, measure_());
      if (!std::exchange(corrected_, true))
        log::info(
            strfmt("compute   a step was faster than the GEMM peak of %.1f GFLOP/s measured at the start; measured "
                   "again: %.1f GFLOP/s",
                   1e-9 * before, 1e-9 * flops_));
    }
  }
  return reached / flops_;
}

}  // namespace tessera::jobs
