// SPDX-License-Identifier: Apache-2.0
// The simulated device's libraries: in place of cuBLASLt's GEMMs the host's, in place of cuDNN's attention the device's
// own.
#include <cstring>
#include <map>
#include <mutex>
#include <vector>

#include "kernels/cuda/cudnn/attention.hpp"
#include "kernels/cuda/gemm_choice.hpp"
#include "kernels/cuda/gemm_few_rows.hpp"
#include "kernels/cuda/ops.hpp"
#include "tests/simulated_device/arguments.hpp"

namespace tessera::kernels::cuda {

/// The state that kernels/cuda/gemm.cpp keeps for a device.
struct GemmState {
  struct Call {
    TensorView result;
    std::int64_t pitch = 0;
    StreamView stream;
    std::int64_t calls = 0;
  };
  std::mutex mutex;
  GemmChoices choices{"a simulated device"};
  bool recording = false;
  std::map<GemmPlan, Call> recorded;
};
static GemmState& gemm_state() {
  static GemmState own;
  return own;
}

void gemm(const GemmArgs& given, StreamView stream) {
  using A = GemmArgs;
  const GemmPlan plan = plan_gemm(given);
  if (is_of_few_rows(plan)) return gemm_few_rows(given, stream);
  {
    GemmState& own = gemm_state();
    const std::lock_guard lock(own.mutex);
    if (own.recording)
      ++own.recorded.try_emplace(plan, GemmState::Call{given.c, plan.result_pitch, stream}).first->second.calls;
  }
  simulated::launch(
      stream, [args = taken(given, &A::a, &A::b, &A::c, &A::addend, &A::bias)] { kernels::gemm(args, host_stream); });
}

void set_gemm_workspace(StreamView, std::byte*) {}

void record_gemms() {
  GemmState& own = gemm_state();
  const std::lock_guard lock(own.mutex);
  own.recording = true;
  own.recorded.clear();
}

/// Times nothing, but overwrites the results with NaNs, as timing may.
std::size_t finish_recording_gemms(Timing timing) {
  GemmState& own = gemm_state();
  const std::lock_guard lock(own.mutex);
  std::size_t timed = 0;
  for (const auto& [plan, call] : own.recorded) {
    if (timing == Timing::off || own.choices.find(plan)) continue;
    own.choices.keep(plan, {{static_cast<std::uint64_t>(plan.m)}, plan.n});
    ++timed;
    simulated::launch(call.stream, [c = call.result, pitch = static_cast<std::size_t>(call.pitch)] {
      const std::size_t size = size_of(c.dtype);
      for (std::size_t row = 0; row < static_cast<std::size_t>(c.shape[0]); ++row)
        std::memset(static_cast<std::byte*>(c.data) + row * pitch * size, 0xff,
                    static_cast<std::size_t>(c.shape[1]) * size);
    });
  }
  own.recording = false;
  own.recorded.clear();
  return timed;
}

/// Times nothing: every GEMM has the same rate.
std::vector<RecordedGemm> time_recorded_gemms() {
  GemmState& own = gemm_state();
  const std::lock_guard lock(own.mutex);
  std::vector<RecordedGemm> gemms;
  for (const auto& [plan, call] : own.recorded)
    gemms.push_back({str(plan), flops_of(plan), call.calls, flops_of(plan) / 1e12});
  own.recording = false;
  own.recorded.clear();
  return gemms;
}

std::string gemm_choices() {
  const std::lock_guard lock(gemm_state().mutex);
  return gemm_state().choices.text();
}

std::size_t apply_gemm_choices(const std::string& text, const std::string& from, RefusedChoice) {
  const std::lock_guard lock(gemm_state().mutex);
  return gemm_state().choices.take(text, from);
}

namespace cudnn {
namespace {

/// The list has every token once, and says what positions say; padding is listed in pieces. As CUDA's, the memory is
/// read when the stream reaches the call.
void check_documents(const AttentionShape& s, const TensorView& token_positions, const AttentionDocuments& documents,
                     StreamView stream) {
  if (s.longest == 0) return;
  simulated::launch(
      stream, [count = s.batch * s.tokens, row = s.tokens, positions = token_positions.as<std::int32_t>(),
               starts = documents.starts.as<std::int32_t>(), lengths = documents.lengths.as<std::int32_t>(),
               groups = std::vector(documents.groups.begin(), documents.groups.end())] {
        std::int64_t tokens = 0, entry = 0;
        for (const DocumentGroup& group : groups) {
          TESSERA_ASSERT(group.first == entry && group.count > 0, "a group from %ld on", group.first);
          for (; entry < group.first + group.count; ++entry) {
            const std::int64_t first = starts[entry], length = lengths[entry];
            TESSERA_ASSERT(length > 0 && length <= group.tokens && first / row == (first + length - 1) / row,
                           "a document of %ld tokens from %ld on", length, first);
            const bool pads = length > 1 && positions[first + 1] == 0;
            for (std::int64_t t = 1; t < length; ++t)
              TESSERA_ASSERT(positions[first + t] == (pads ? 0 : positions[first] + t),
                             "token %ld of a document from %ld on", t, first);
            tokens += length;
          }
        }
        TESSERA_ASSERT(tokens == count, "%ld tokens of %ld are in documents", tokens, count);
      });
}

}  // namespace

void require(Device) {}
void attention_forward(const AttentionForwardArgs& args, StreamView stream) {
  check_documents(args.of.shape, args.of.positions, args.of.documents, stream);
  if (args.of.shape.head_dim == 128)
    throw Error(ExitCode::usage, "the simulated library has no kernel for heads of 128");
  cuda::attention_forward(args, stream);
}
void attention_backward(const AttentionBackwardArgs& args, StreamView stream) {
  check_documents(args.of.shape, args.of.positions, args.of.documents, stream);
  cuda::attention_backward(args, stream);
}
}  // namespace cudnn

}  // namespace tessera::kernels::cuda
