// SPDX-License-Identifier: Apache-2.0
// Choices of algorithms as text. No CUDA calls: the simulated device compiles it too.
#include "kernels/cuda/gemm_choice.hpp"

#include <cinttypes>
#include <sstream>

#include "runtime/base/rng.hpp"

namespace tessera::kernels::cuda {
namespace {

constexpr int text_version = 2;
constexpr const char* remedy = "Delete the file: GEMMs are timed again and the file is rewritten";

std::string title(int version) { return strfmt("products of tessera, %d", version); }  // on disk: keeps its name

/// Splits "PLAN = …"; a time that is missing, of a text of version 1, is 0.
bool parse(const std::string& line, std::string& plan, GemmChoice& choice) {
  const auto equals = line.rfind(" = ");
  if (equals == std::string::npos) return false;
  plan = line.substr(0, equals);
  AlgorithmBytes& a = choice.algorithm;
  return std::sscanf(line.c_str() + equals + 3,
                     "%16" SCNx64 " %16" SCNx64 " %16" SCNx64 " %16" SCNx64 " %16" SCNx64 " %16" SCNx64 " %16" SCNx64
                     " %16" SCNx64 " in %" SCNd64,
                     &a[0], &a[1], &a[2], &a[3], &a[4], &a[5], &a[6], &a[7], &choice.nanoseconds) >= 8;
}

}  // namespace

std::string str(const GemmPlan& p) {
  return strfmt("%s %c,%c %ldx%ldx%ld -> %s, pitches %ld %ld %ld, aligned %u %u %u%s%s", name_of(p.operands),
                p.first_transposed ? 'T' : 'N', p.second_transposed ? 'T' : 'N', p.m, p.n, p.k, name_of(p.result),
                p.first_pitch, p.second_pitch, p.result_pitch, p.first_alignment, p.second_alignment,
                p.result_alignment, p.bias ? ", bias" : "", p.adds ? ", added" : "");
}

std::string GemmChoices::text() const { return text(text_version); }

std::string GemmChoices::text(int version) const {
  std::string text = title(version) + "\n" + identity_ + "\n";
  for (const auto& [plan, choice] : choices_) {
    text += plan + " =";
    for (const std::uint64_t word : choice.algorithm) text += strfmt(" %016" PRIx64, word);
    text += version == 1 ? "\n" : strfmt(" in %" PRId64 " ns\n", choice.nanoseconds);
  }
  return text + strfmt("sum %016" PRIx64 "\n", hash64(text));
}

/// Accepts only the exact bytes that text() would write: one comparison finds damage, lines out of order, duplicated or
/// missing, and numbers in another notation.
std::size_t GemmChoices::take(const std::string& text, const std::string& from) {
  std::istringstream lines(text);
  std::string line, plan;
  (void)std::getline(lines, line);
  const int version = line == title(1) ? 1 : text_version;
  if (line != title(version) || !std::getline(lines, line))
    throw Error(ExitCode::data, "not a file of GEMM algorithm choices", from,
                "Name another file, or one that does not exist yet");
  GemmChoices read(line);
  while (std::getline(lines, line)) {
    GemmChoice choice;
    if (parse(line, plan, choice)) read.choices_[plan] = choice;
  }
  if (read.text(version) != text) throw Error(ExitCode::data, "the GEMM algorithm choices are damaged", from, remedy);
  if (read.identity_ != identity_)
    throw Error(ExitCode::usage, "the GEMM algorithm choices are for " + read.identity_ + ", and this is " + identity_,
                from, "Name another file; one that does not exist is created");
  for (const auto& [key, choice] : read.choices_) choices_[key] = choice;
  return read.choices_.size();
}

std::optional<GemmChoice> GemmChoices::find(const GemmPlan& plan) const {
  const auto at = choices_.find(str(plan));
  return at == choices_.end() ? std::nullopt : std::optional(at->second);
}

}  // namespace tessera::kernels::cuda
