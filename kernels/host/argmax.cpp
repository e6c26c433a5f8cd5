// SPDX-License-Identifier: Apache-2.0
#include "kernels/host/argmax.hpp"

#include <algorithm>

#include "kernels/argmax.hpp"

namespace tessera::kernels::host {

void argmax(const ArgmaxArgs& args) {
  const std::int64_t rows = args.x.shape[0], width = args.x.shape[1];
  for (std::int64_t r = 0; r < rows; ++r) {
    const float* const row = args.x.as<float>() + r * width;
    float probe = 0;  // not 0 if an element is not finite
    for (std::int64_t i = 0; i < width; ++i) probe += 0 * row[i];
    args.out.as<std::int32_t>()[r] =
        probe == 0 ? static_cast<std::int32_t>(std::max_element(row, row + width) - row) : -1;
  }
}

}  // namespace tessera::kernels::host
