// SPDX-License-Identifier: Apache-2.0
// `tessera bench dequantize`: how fast quantized matrices become floats, beside the memory bandwidth.
#include <algorithm>
#include <chrono>
#include <nlohmann/json.hpp>

#include "jobs/bench/bench.hpp"
#include "jobs/cli/session/resources.hpp"
#include "jobs/cli/session/versions.hpp"
#include "kernels/bandwidth.hpp"
#include "kernels/dequantize.hpp"
#include "kernels/quantize.hpp"
#include "runtime/base/log.hpp"
#include "runtime/base/mapping.hpp"

namespace tessera::jobs {

namespace {

constexpr std::int64_t matrix_rows = 4096, matrix_columns = 14336;  // a projection of an MLP of 8 billion parameters

/// Bytes read and written in a second, in GB/s; the best of `repeats`.
double dequantize_speed(QuantFormat format, DType dtype, int repeats) {
  const QuantizedMatrix matrix{format, matrix_rows, matrix_columns};
  const auto in_bytes = static_cast<std::size_t>(matrix.bytes());
  const std::size_t out_bytes = static_cast<std::size_t>(matrix.numel()) * size_of(dtype);
  // In huge pages, as models' memory is.
  const Mapping in = Mapping::anonymous(in_bytes, "tessera bench"),
                out = Mapping::anonymous(out_bytes, "tessera bench");
  kernels::Quantizer(matrix, [](std::int64_t first, std::int64_t count, float* to) {
    for (std::int64_t i = 0; i < count; ++i) to[i] = static_cast<float>((first + i) % 251) - 125.0F;
  }).read(0, {in.data(), in_bytes});
  const kernels::DequantizeArgs args{.matrix = matrix,
                                     .bytes = {in.data(), DType::u8, Shape{matrix.bytes()}},
                                     .out = {out.data(), dtype, Shape{matrix.rows, matrix.columns}}};
  double best = 0;
  for (int i = 0; i <= repeats; ++i) {  // the first writes to new pages
    const auto begin = std::chrono::steady_clock::now();
    kernels::dequantize(args, host_stream);
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    if (i > 0) best = std::max(best, static_cast<double>(in_bytes + out_bytes) / seconds / 1e9);
  }
  return best;
}

}  // namespace

void bench_dequantize_command(const Call& call, World& world) {
  const Options& options = call.options();
  const int threads = set_rank_threads(options, world).threads;
  const auto repeats = static_cast<int>(options.integer("bench_repeats"));
  // Of all ranks at once, in MB/s, which sum exactly.
  const auto of_all = [&](double speed) {
    return static_cast<double>(world.sum(static_cast<std::int64_t>(1e3 * speed))) / 1e3;
  };
  const double read = of_all(kernels::measure_read_bandwidth(std::size_t{256} << 20, repeats));
  nlohmann::ordered_json json;
  json["ranks"] = world.size(), json["threads_per_rank"] = threads, json["read_gb_per_s"] = read;
  if (!options.flag("json")) {
    log::info(version_line());
    log::info(
        strfmt("Dequantizing %ld x %ld, %d ranks at once, %d threads each, best of %d; memory is read at %.1f GB/s",
               matrix_rows, matrix_columns, world.size(), threads, repeats, read));
    log::info(strfmt("%10s %8s %26s %12s", "from", "to", "read and written, GB/s", "of reading"));
  }
  for (const QuantFormat format : quant_formats)
    for (const DType dtype : {DType::bf16, DType::f32}) {
      const double speed = of_all(dequantize_speed(format, dtype, repeats));
      json["formats"].push_back({{"from", name_of(format)}, {"to", name_of(dtype)}, {"gb_per_s", speed}});
      if (!options.flag("json"))
        log::info(strfmt("%10s %8s %26.1f %10.0f %%", name_of(format), name_of(dtype), speed, 100 * speed / read));
    }
  if (options.flag("json")) log::info(json.dump(2));
}

}  // namespace tessera::jobs
