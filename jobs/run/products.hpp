#pragma once
// --gemm_choice: how the products of a run on devices come by their algorithms, and the file that keeps them.

#include <string>

#include "jobs/options/options.hpp"
#include "runtime/train/trainer.hpp"

namespace tessera::jobs {

/// Throws Error (usage) where products are to be measured and this world computes on the CPU.
void check_products(const Options& options, const World& world);

struct ProductsOfRun {
  const Options* options = nullptr;
  World* world = nullptr;
  train::Trainer* trainer = nullptr;
  const io::TokenStream* tokens = nullptr;  // of the step that is rehearsed
  const io::Sampler* sampler = nullptr;
  std::int64_t count = 0;  // its samples
};
/// Collective, before the first step. Measures if that is asked for; reads and writes the file on rank 0. Returns how they were chosen, for people; "" on the CPU.
/// Throws Error (usage: a file for another device; data: a damaged one, or one that cannot be written) on every rank alike.
[[nodiscard]] std::string choose_products(const ProductsOfRun& run);

}  // namespace tessera::jobs
