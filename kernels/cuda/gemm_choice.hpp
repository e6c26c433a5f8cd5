// SPDX-License-Identifier: Apache-2.0
#pragma once
// Choices of algorithms as text, and the device side of kernels/gemm_choice.hpp.

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "kernels/cuda/gemm_plan.hpp"
#include "kernels/gemm_choice.hpp"

namespace tessera::kernels::cuda {

/// A candidate's 64 bytes as the library returns them: valid for the same library on the same kind of device only.
using AlgorithmBytes = std::array<std::uint64_t, 8>;

/// Choices by str(plan). Text: a title line, a line with library and device, lines "PLAN = 16 hexadecimal digits, eight
/// times" in order, and a last line with a checksum of the lines above.
class GemmChoices {
 public:
  explicit GemmChoices(std::string identity) : identity_(std::move(identity)) {}
  [[nodiscard]] std::string text() const;
  /// Adds the choices of another's text() and returns their number. Throws Error (usage) if it was made for another
  /// library or device, Error (data) unless text() would write every byte the same. `from` names its source.
  std::size_t take(const std::string& text, const std::string& from);
  [[nodiscard]] std::optional<AlgorithmBytes> find(const GemmPlan& plan) const;
  void keep(const GemmPlan& plan, const AlgorithmBytes& algorithm) { choices_[str(plan)] = algorithm; }
  void forget(const GemmPlan& plan) { choices_.erase(str(plan)); }

 private:
  std::string identity_;
  std::map<std::string, AlgorithmBytes> choices_;
};

void record_gemms();
std::size_t finish_recording_gemms(Timing timing);
[[nodiscard]] std::string gemm_choices();
std::size_t apply_gemm_choices(const std::string& text, const std::string& from, RefusedChoice refused);
void set_gemm_workspace(StreamView stream, std::byte* workspace);

/// Bytes of the library's workspace, one for each stream with GEMMs.
inline constexpr std::size_t gemm_workspace_bytes = gemm_device_workspace;

}  // namespace tessera::kernels::cuda
