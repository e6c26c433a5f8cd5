// Choices of algorithms as text.
#include "kernels/cuda/gemm_choice.hpp"

#include <cinttypes>
#include <fstream>

namespace tessera::kernels::cuda {

std::string str(const GemmPlan& p) {
  return strfmt("%s %c,%c %lldx%lldx%lld -> %s, pitches %lld %lld %lld, aligned %u %u %u%s%s", name_of(p.operands),
                p.first_transposed ? 'T' : 'N', p.second_transposed ? 'T' : 'N', static_cast<long long>(p.m),
                static_cast<long long>(p.n), static_cast<long long>(p.k), name_of(p.result),
                static_cast<long long>(p.first_pitch), static_cast<long long>(p.second_pitch),
                static_cast<long long>(p.result_pitch), p.first_alignment, p.second_alignment, p.result_alignment,
                p.bias ? ", bias" : "", p.adds ? ", added" : "");
}

void GemmChoices::read(const std::string& path) {
  std::ifstream in(path);
  std::string line;
  if (!std::getline(in, line))
    throw Error(ExitCode::data, "no choices of products in " + path, {},
                "make the file by a run that times them, or leave the option out");
  if (line != identity_)
    throw Error(ExitCode::usage, "choices of products for " + line, path,
                "this run has " + identity_ + ": time the products again");
  const std::lock_guard lock(mutex_);
  for (int number = 2; std::getline(in, line); ++number) {
    const auto equals = line.rfind(" = ");
    AlgorithmBytes a{};
    char more = 0;
    const int found = equals == std::string::npos ? 0
                                                  : std::sscanf(line.c_str() + equals + 3,
                                                                "%16" SCNx64 " %16" SCNx64 " %16" SCNx64 " %16" SCNx64
                                                                " %16" SCNx64 " %16" SCNx64 " %16" SCNx64 " %16" SCNx64 " %c",
                                                                &a[0], &a[1], &a[2], &a[3], &a[4], &a[5], &a[6], &a[7], &more);
    if (found != 8)
      throw Error(ExitCode::data, "not a choice of a product", strfmt("%s:%d", path.c_str(), number), "make the file anew");
    choices_[line.substr(0, equals)] = a;
  }
}

void GemmChoices::write(const std::string& path) const {
  std::ofstream out(path, std::ios::trunc);
  const std::lock_guard lock(mutex_);
  out << identity_ << '\n';
  for (const auto& [plan, algorithm] : choices_) {
    out << plan << " =";
    for (const std::uint64_t word : algorithm) out << strfmt(" %016" PRIx64, word);
    out << '\n';
  }
  out.flush();
  if (!out)
    throw Error(ExitCode::data, "choices of products were not written", path, "is there room, and may this user write there?");
}

std::optional<AlgorithmBytes> GemmChoices::find(const GemmPlan& plan) const {
  const std::lock_guard lock(mutex_);
  const auto at = choices_.find(str(plan));
  return at == choices_.end() ? std::nullopt : std::optional(at->second);
}

void GemmChoices::keep(const GemmPlan& plan, const AlgorithmBytes& algorithm) {
  const std::lock_guard lock(mutex_);
  choices_[str(plan)] = algorithm;
}

std::size_t GemmChoices::size() const {
  const std::lock_guard lock(mutex_);
  return choices_.size();
}

}  // namespace tessera::kernels::cuda
