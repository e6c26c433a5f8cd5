// Dispatch: only devices have choices.
#include "kernels/gemm_choice.hpp"

#include "kernels/cuda/gemm_choice.hpp"
#include "runtime/base/device.hpp"

namespace tessera::kernels {

void note_products() {
  if constexpr (cuda_built) cuda::note_products();
}

std::size_t end_noting(Timing timing) {
  if constexpr (cuda_built) return cuda::end_noting(timing);
  return 0;
}

std::string product_choices() {
  if constexpr (cuda_built) return cuda::product_choices();
  return {};
}

std::size_t take_product_choices(const std::string& text, const std::string& from) {
  if constexpr (cuda_built) return cuda::take_product_choices(text, from);
  return 0;
}

}  // namespace tessera::kernels
