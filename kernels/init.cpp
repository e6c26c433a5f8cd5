// Initialisers: the key of a parameter, ranges that start anywhere, threads.
#include "kernels/init.hpp"

#include <algorithm>

#include "kernels/cuda/ops.hpp"
#include "kernels/host/init.hpp"
#include "kernels/host/parallel.hpp"
#include "kernels/reduce.hpp"
#include "runtime/base/rng.hpp"

namespace tessera::kernels {

namespace {

/// Elements [first, first + count), first and count ≥ 0, of the sequence of `key`.
void normal_range(std::uint64_t key, std::int64_t first, std::int64_t count, double std, float* out) {
  const auto& table = host::init();
  const auto piece = [&](std::int64_t group, std::int64_t from, std::int64_t to) {  // elements from … to of one group
    float four[4];
    table.normal(key, static_cast<std::uint64_t>(group), 1, std, four);
    std::copy(four + from, four + to, out);
    out += to - from;
    count -= to - from;
  };
  if (const std::int64_t skip = first % 4; skip != 0 && count > 0)
    piece(first / 4, skip, std::min<std::int64_t>(4, skip + count));
  const std::int64_t group = (first + 3) / 4, whole = count / 4;
  table.normal(key, static_cast<std::uint64_t>(group), whole, std, out);
  out += 4 * whole;
  count -= 4 * whole;
  if (count > 0) piece(group + whole, 0, count);
}

}  // namespace

void initialise(const ParamSpec& param, std::uint64_t seed, std::int64_t first, std::int64_t count, float* out,
                StreamView stream) {
  TESSERA_ASSERT(first >= 0 && count >= 0 && first + count <= param.numel(), "elements %lld + %lld of %s %s",
                 static_cast<long long>(first), static_cast<long long>(count), param.name.c_str(),
                 param.shape.str().c_str());
  const auto n = static_cast<std::size_t>(count);
  switch (param.init.kind) {
    case Initializer::Kind::zeros: return fill(out, n, 0.0F, stream);
    case Initializer::Kind::ones: return fill(out, n, 1.0F, stream);
    case Initializer::Kind::normal: break;
  }
  const auto words = philox(seed, hash64(param.name));
  const std::uint64_t key = static_cast<std::uint64_t>(words[1]) << 32 | words[0];
  if constexpr (cuda_built)
    if (is_on_cuda(stream))
      return cuda::normals({.key = key, .first = first, .count = count, .std = param.init.std, .out = out}, stream);
  host::parallel_ranges(count, 4096, [&](std::int64_t begin, std::int64_t end) {
    normal_range(key, first + begin, end - begin, param.init.std, out + begin);
  });
}

}  // namespace tessera::kernels
