#pragma once
// Which of the library's algorithms a product takes. The first candidate is the rule: the same everywhere, every run. Timing finds better ones, but differs
// from run to run, and an algorithm's sums have an order of their own: so what was timed is kept in a file, and bits repeat with the file.

#include <array>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <string>

#include "kernels/cuda/gemm_plan.hpp"

namespace tessera::kernels::cuda {

/// A candidate's 64 bytes, as the library gives them; they mean something to the same library on the same kind of device only.
using AlgorithmBytes = std::array<std::uint64_t, 8>;

/// Choices by str(plan). Text: a first line that names library and device, then "PLAN = 16 hexadecimal digits, eight times". Threads may share it.
class GemmChoices {
 public:
  explicit GemmChoices(std::string identity) : identity_(std::move(identity)) {}
  /// Takes in a file written by write(). Throws Error (usage) if it was made for another library or device, Error (data) if it is not such a file.
  void read(const std::string& path);
  /// Throws Error (data) where it cannot be written.
  void write(const std::string& path) const;
  [[nodiscard]] std::optional<AlgorithmBytes> find(const GemmPlan& plan) const;
  void keep(const GemmPlan& plan, const AlgorithmBytes& algorithm);
  [[nodiscard]] std::size_t size() const;

 private:
  std::string identity_;
  mutable std::mutex mutex_;
  std::map<std::string, AlgorithmBytes> choices_;
};

/// How products choose from now on. `timed`: products not yet chosen are timed on scratch memory, which allocates and waits: for runs that make the file,
/// before the first step of any other.
struct GemmSetting {
  bool timed = false;
  std::string file;  // read when the library is opened; "": none
};
void set_gemm(const GemmSetting& setting);
/// Writes what this process has chosen. Rank 0 does so, and the others read it in their next run.
void write_gemm_choices(const std::string& path);

/// Bytes of the library's workspace, one for each stream that multiplies, outside the arena: made at the first product of a stream.
inline constexpr std::size_t gemm_workspace_bytes = gemm_device_workspace;

}  // namespace tessera::kernels::cuda
