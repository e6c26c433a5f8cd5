// SPDX-License-Identifier: Apache-2.0
#pragma once
// How fast this machine multiplies matrices: what step times and MFU are compared with.

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "models/module.hpp"
#include "runtime/comm/world.hpp"

namespace tessera::jobs {

struct GemmShape {
  std::int64_t m = 0, n = 0, k = 0;
  friend bool operator==(const GemmShape&, const GemmShape&) = default;
};
/// 2048^3 and the model's own large GEMMs for a micro-batch of `rows` tokens: those of a block (H x 3H, H x H, H x 4H,
/// 4H x H), and the head on a chunk of the vocabulary. From the shapes of the model's two-dimensional parameters.
[[nodiscard]] std::vector<GemmShape> gemm_shapes(const models::Model& model, std::int64_t rows);

/// Collective: the seconds of the slowest rank that the library alone takes for a micro-batch's GEMMs with the model's
/// two-dimensional parameters, in the model's dtype (f32 or bf16): for each the output, and the gradients of its input
/// and, if it is trained, of itself (stored in fp32), with the operands transposed as in a step. Each is multiplied on
/// its own, `repeats` times, by all ranks at once, and its best time counts. Attention's GEMMs and those of grouped
/// experts are not among them. 0 for another dtype.
[[nodiscard]] double seconds_of_gemms_alone(World& world, const models::Model& model, std::int64_t rows, int repeats);

/// Collective: GFLOP/s summed over ranks that multiply at the same time; each rank's best of `repeats`. f32 or bf16.
[[nodiscard]] double measure_gemm_on_all_ranks(World& world, const GemmShape& shape, int repeats,
                                               DType dtype = DType::f32);

/// Edge of the GEMM that a GPU is measured with: so large that launches and memory traffic no longer show.
inline constexpr std::int64_t device_gemm_size = 8192;
/// Collective: GFLOP/s of an edge³ GEMM, summed over ranks that multiply at the same time, each on its GPU; best of
/// `repeats` after two to warm up. Operands are random, because zeros multiply faster. Takes 3·edge² elements of device
/// memory; throws Error (does_not_fit) on every rank where one has not as much.
[[nodiscard]] double measure_device_gemm_on_all_ranks(World& world, DType dtype, std::int64_t edge, int repeats);

/// What MFU is a share of: FLOP/s of all ranks together. GPUs count by their published peak; CPUs by a GEMM measured at
/// the start, and measured again when a step is faster, because then the machine was busy at the start.
class ComputePeak {
 public:
  using Measure = std::function<double()>;  // collective; FLOP/s over all ranks
  ComputePeak() = default;                  // unknown
  explicit ComputePeak(double flops, Measure measure = {}) : flops_(flops), measure_(std::move(measure)) {}
  static ComputePeak unknown(std::string why) {
    ComputePeak peak;
    peak.why_unknown_ = std::move(why);
    return peak;
  }

  [[nodiscard]] double flops() const { return flops_; }  // 0: unknown
  /// A sentence for the log, on rank 0.
  [[nodiscard]] const std::string& why_unknown() const { return why_unknown_; }
  /// Collective: model FLOPs in `seconds` as a share of the peak; none if that is unknown. Measures again and prints
  /// so, once, where a rank's figure is above 1; never returns more than 1 then.
  [[nodiscard]] std::optional<double> mfu(World& world, double flops, double seconds);

 private:
  double flops_ = 0;
  Measure measure_;
  bool corrected_ = false;
  std::string why_unknown_;
};

/// Collective: the ranks' GPUs by name, for GEMMs of `dtype`; unknown if the table (runtime/plan/gpu_specs) lacks one.
[[nodiscard]] ComputePeak gpu_peak(World& world, DType dtype);
/// Collective: bytes a second of the memories of the ranks' GPUs, as published; a GPU that several ranks share counts
/// once. 0: the table lacks one.
[[nodiscard]] double gpu_memory_rate(World& world);
/// Collective: measures the model's largest GEMM, shortened to fit about `seconds`, in fp32, and in bf16 too where the
/// run computes in it; the faster one counts.
[[nodiscard]] ComputePeak cpu_peak(World& world, const models::Model& model, std::int64_t rows, double seconds);

}  // namespace tessera::jobs
