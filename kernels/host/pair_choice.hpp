#pragma once
// Which instruction multiplies packed pairs of bf16 on this CPU. No CPU at hand had one when these kernels were
// written: each proves itself, on the CPU it is to run on, before its first product.

#include <span>
#include <string>

#include "kernels/host/pair_tile.hpp"

namespace tessera::kernels::host {

/// Multiplies a small product of whole numbers, of odd sizes and several blocks of k, by this kernel and in plain C++:
/// all numbers are equal, and nothing beside C is written. About a tenth of a millisecond, no allocation.
[[nodiscard]] bool proves_itself(const PairKernel& kernel);

struct PairCandidate {
  PairKernel kernel;
  std::string missing;  // why it cannot run here; empty: it can
};
struct PairChoice {
  const PairKernel* kernel = nullptr;  // null: none, halves are up-cast
  std::string passed_over;             // "no amx-bf16: …; no avx512-bf16: …"
};
/// The first that can run and proves itself; warns (W030, on this rank) of one that does not. Candidates outlive the
/// choice.
[[nodiscard]] PairChoice choose_pairs(std::span<const PairCandidate> candidates);

/// That of this process for the instruction set in use. The first call asks Linux for AMX's
/// registers; other threads wait for it.
[[nodiscard]] const PairChoice& pair_choice();

}  // namespace tessera::kernels::host
