// SPDX-License-Identifier: Apache-2.0
// In place of onednn.cpp in a build without oneDNN (TESSERA_ONEDNN=OFF).
#include "kernels/host/onednn.hpp"

namespace tessera::kernels::host {

template <class T>
const OneDnn& onednn() {
  static const OneDnn none{"", "this build is without it (TESSERA_ONEDNN=OFF)"};
  return none;
}
template const OneDnn& onednn<bf16>();
template const OneDnn& onednn<f16>();

template <class T, class G>
bool onednn_gemm(const HalfProduct<T, G>&, std::byte*, std::size_t) {
  return false;
}
template bool onednn_gemm(const HalfProduct<bf16, bf16>&, std::byte*, std::size_t);
template bool onednn_gemm(const HalfProduct<bf16, float>&, std::byte*, std::size_t);
template bool onednn_gemm(const HalfProduct<f16, f16>&, std::byte*, std::size_t);
template bool onednn_gemm(const HalfProduct<f16, float>&, std::byte*, std::size_t);

}  // namespace tessera::kernels::host
