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

/// The algorithm of a GEMM, and what it took when it was chosen.
struct GemmChoice {
  AlgorithmBytes algorithm{};
  std::int64_t nanoseconds = 0;  // 0: not known
  friend bool operator==(const GemmChoice&, const GemmChoice&) = default;
};

/// Choices by str(plan). Text: a title line, a line with library and device, lines "PLAN = 16 hexadecimal digits, eight
/// times in N ns" in order, and a last line with a checksum of the lines above. Texts of version 1, without the times,
/// are read.
class GemmChoices {
 public:
  explicit GemmChoices(std::string identity) : identity_(std::move(identity)) {}
  [[nodiscard]] std::string text() const;
  /// Adds the choices of another's text() and returns their number. Throws Error (usage) if it was made for another
  /// library or device, Error (data) unless text() would write every byte the same. `from` names its source.
  std::size_t take(const std::string& text, const std::string& from);
  [[nodiscard]] std::optional<GemmChoice> find(const GemmPlan& plan) const;
  void keep(const GemmPlan& plan, const GemmChoice& choice) { choices_[str(plan)] = choice; }
  void forget(const GemmPlan& plan) { choices_.erase(str(plan)); }

 private:
  [[nodiscard]] std::string text(int version) const;
  std::string identity_;
  std::map<std::string, GemmChoice> choices_;
};

void record_gemms();
std::size_t finish_recording_gemms(Timing timing);
std::vector<RecordedGemm> time_recorded_gemms();
[[nodiscard]] std::string gemm_choices();
std::size_t apply_gemm_choices(const std::string& text, const std::string& from, RefusedChoice refused);
void set_gemm_workspace(StreamView stream, std::byte* workspace);

/// Bytes of the library's workspace, one for each stream with GEMMs.
inline constexpr std::size_t gemm_workspace_bytes = gemm_device_workspace;

}  // namespace tessera::kernels::cuda
