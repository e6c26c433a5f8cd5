// SPDX-License-Identifier: Apache-2.0
#pragma once
// Choice of cuBLASLt's algorithm for each GEMM of a run. By default the library's first candidate, which is the same in
// every run. Timing finds faster ones, but its result differs from run to run, and each algorithm adds in its own
// order: timed choices are therefore kept as text, and with the same text the bits repeat. Everything here concerns the
// calling thread's device and is called before a run's first step.

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "runtime/base/stream.hpp"

namespace tessera::kernels {

/// From now on records the first call of every GEMM with its memory, and counts the others. Forgets earlier records.
void record_gemms();
/// Ends the recording. Synchronizes; nothing else may be running. With Timing::on, times the candidates of each
/// recorded GEMM without a known choice, on the memory of its call, whose result is overwritten with garbage, and takes
/// the fastest. Returns how many GEMMs were timed.
enum class Timing : unsigned char { off, on };
std::size_t finish_recording_gemms(Timing timing);

/// A GEMM of a recording.
struct RecordedGemm {
  std::string name;        // "bf16 T,N 4096x32768x1536 -> fp32, …": as the column-major library sees it
  double flops = 0;        // of a call
  std::int64_t calls = 0;  // during the recording
  double seconds = 0;      // of a call: measured again with its algorithm, alternately with the other GEMMs
};
/// Ends the recording as Timing::on does, but changes no choice. None on the host.
[[nodiscard]] std::vector<RecordedGemm> time_recorded_gemms();

/// The choices, timed or applied, with the library's version and the device they belong to. Ends in a checksum.
[[nodiscard]] std::string gemm_choices();
/// An algorithm that the library refuses for its GEMM, found when the choices are applied, or at the GEMM's first call:
/// Error (data), or the choice is forgotten.
enum class RefusedChoice : unsigned char { error, forgotten };
/// Applies the text of gemm_choices(), also to GEMMs that have run already. Returns how many choices it holds. `from`
/// names its source in errors. Throws Error (usage) if it is for another library or device, Error (data) if it is not
/// such a text, or is damaged. `refused` holds for all choices from now on.
std::size_t apply_gemm_choices(const std::string& text, const std::string& from,
                               RefusedChoice refused = RefusedChoice::error);

/// Device memory (gemm_device_workspace bytes) that GEMMs on `stream` use as workspace; null: no longer. A stream
/// without one allocates its own at the first GEMM.
void set_gemm_workspace(StreamView stream, std::byte* workspace);

}  // namespace tessera::kernels
