#pragma once
// What this machine and its devices can multiply: what step times are set against.

#include <cstdint>
#include <vector>

#include "models/module.hpp"
#include "runtime/comm/world.hpp"

namespace tessera::jobs {

struct GemmShape {
  std::int64_t m = 0, n = 0, k = 0;
};
/// 2048^3 and the model's own large products for a micro-batch of `rows` tokens: of a block (H x 3H, H x H, H x 4H, 4H
/// x H), and the head in a chunk of the vocabulary. From the shapes of the model's two-dimensional parameters.
[[nodiscard]] std::vector<GemmShape> gemm_shapes(const models::Model& model, std::int64_t rows);

/// Collective: GFLOP/s summed over ranks, all at once, each shape best of `repeats` on each rank.
/// `dtype`: f32 or bf16.
[[nodiscard]] double measure_gemm_on_all_ranks(World& world, const GemmShape& shape, int repeats,
                                               DType dtype = DType::f32);

/// What a device is held against: its library's product of this edge, long past the sizes at which launching and memory
/// show.
inline constexpr std::int64_t device_gemm_size = 8192;
/// Collective: GFLOP/s of edge³ summed over ranks, all at once, each on its device; best of `repeats` after two to warm
/// up. Operands are random: of zeros the same product is faster. Takes 3·edge² numbers of device memory while it runs;
/// throws Error (does_not_fit) on every rank where one has no room for them.
[[nodiscard]] double measure_device_gemm_on_all_ranks(World& world, DType dtype, std::int64_t edge, int repeats);

/// Collective: the limit at the start of a run, in about `seconds`: the model's largest product, cut to fit.
[[nodiscard]] double quick_gemm_peak(World& world, const models::Model& model, std::int64_t rows, double seconds);

}  // namespace tessera::jobs
