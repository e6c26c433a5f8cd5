// SPDX-License-Identifier: Apache-2.0
#include "kernels/init.hpp"

#include "kernels/cuda/ops.hpp"
#include "kernels/host/ops.hpp"
#include "kernels/reduce.hpp"
#include "runtime/base/rng.hpp"

namespace tessera::kernels {

/// Adapters are small: one thread.
static void uniforms(std::uint64_t key, std::int64_t first, std::int64_t count, double bound, float* out) {
  for (std::int64_t i = 0; i < count; ++i) {
    const auto at = static_cast<std::uint64_t>(first + i);
    const double unit = (static_cast<double>(philox(key, at / 4)[at % 4]) + 0.5) * 0x1p-32;
    out[i] = static_cast<float>((2 * unit - 1) * bound);
  }
}

void initialize(const ParamSpec& param, std::uint64_t seed, std::int64_t first, std::int64_t count, float* out,
                StreamView stream) {
  TESSERA_ASSERT(first >= 0 && count >= 0 && first + count <= param.elements(), "elements %ld + %ld of %s %s", first,
                 count, param.name.c_str(), param.shape.str().c_str());
  const auto n = static_cast<std::size_t>(count);
  switch (param.init.kind) {
    case Initializer::Kind::zeros: return fill(out, n, 0.0F, stream);
    case Initializer::Kind::ones: return fill(out, n, 1.0F, stream);
    case Initializer::Kind::normal:
    case Initializer::Kind::uniform: break;
  }
  const auto words = philox(seed, hash64(param.name));
  const std::uint64_t key = static_cast<std::uint64_t>(words[1]) << 32 | words[0];
  if (param.init.kind == Initializer::Kind::uniform) {
    TESSERA_ASSERT(!is_on_cuda(stream), "uniform numbers of %s on a device", param.name.c_str());
    return uniforms(key, first, count, param.init.std, out);
  }
  const NormalArgs args{.key = key, .first = first, .count = count, .std = param.init.std, .out = out};
  TESSERA_DISPATCH(stream, normals, args);
}

}  // namespace tessera::kernels
