// Measuring sgemm on every rank at once.
#include "jobs/run/limit.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>

#include "kernels/threads.hpp"

namespace tessera::jobs {

std::vector<GemmShape> gemm_shapes(const models::Model& model, std::int64_t rows) {
  std::vector<GemmShape> shapes{{2048, 2048, 2048}};
  for (const ParamSpec& param : model.params) {
    if (param.shape.rank() != 2) continue;
    const std::int64_t a = param.shape[0], b = param.shape[1];
    GemmShape shape{rows, b, a};
    // A vocabulary-sized table is multiplied in the head, transposed and in chunks; a position table not at all.
    if (a == model.max_tokens && a != model.vocab) continue;
    if (a == model.vocab) shape = {rows, std::min<std::int64_t>(a, 4096), b};
    const bool known = std::any_of(shapes.begin(), shapes.end(),
                                   [&](const GemmShape& s) { return s.m == shape.m && s.n == shape.n && s.k == shape.k; });
    if (!known) shapes.push_back(shape);
  }
  return shapes;
}

double measure_together(World& world, const GemmShape& shape, int repeats, DType dtype) {
  const auto measure = dtype == DType::bf16 ? kernels::measure_bf16_gemm : kernels::measure_sgemm;
  world.barrier();
  const double mine = measure(shape.m, shape.n, shape.k, repeats);
  world.barrier();
  return static_cast<double>(world.sum(std::llround(mine * 1e6))) / 1e6;
}

double quick_limit(World& world, const models::Model& model, std::int64_t rows, double seconds) {
  GemmShape best{512, 512, 512};
  for (const GemmShape& shape : gemm_shapes(model, rows)) {
    const GemmShape cut{std::min<std::int64_t>(shape.m, 1024), std::min<std::int64_t>(shape.n, 2048),
                        std::min<std::int64_t>(shape.k, 1024)};
    if (cut.m * cut.n * cut.k > best.m * best.n * best.k) best = cut;
  }
  const auto start = std::chrono::steady_clock::now();
  double limit = measure_together(world, best, 1);  // the first one also warms up
  const double once = std::max(1e-4, std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
  const auto more = static_cast<int>(std::clamp(seconds / once - 1, 1.0, 8.0));
  const auto repeats = static_cast<int>(world.max(more));
  return std::max(limit, measure_together(world, best, repeats));
}

}  // namespace tessera::jobs
