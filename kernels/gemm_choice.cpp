// SPDX-License-Identifier: Apache-2.0
// Dispatch: the host has no choice of algorithm.
#include "kernels/gemm_choice.hpp"

#include "kernels/cuda/gemm_choice.hpp"
#include "runtime/base/device.hpp"

namespace tessera::kernels {

void record_gemms() {
  if constexpr (cuda_built) cuda::record_gemms();
}

std::size_t finish_recording_gemms(Timing timing) {
  if constexpr (cuda_built) return cuda::finish_recording_gemms(timing);
  return 0;
}

std::vector<RecordedGemm> time_recorded_gemms() {
  if constexpr (cuda_built) return cuda::time_recorded_gemms();
  return {};
}

std::string gemm_choices() {
  if constexpr (cuda_built) return cuda::gemm_choices();
  return {};
}

std::size_t apply_gemm_choices(const std::string& text, const std::string& from, RefusedChoice refused) {
  if constexpr (cuda_built) return cuda::apply_gemm_choices(text, from, refused);
  return 0;
}

void set_gemm_workspace([[maybe_unused]] StreamView stream, [[maybe_unused]] std::byte* workspace) {
  if constexpr (cuda_built) cuda::set_gemm_workspace(stream, workspace);
}

}  // namespace tessera::kernels
