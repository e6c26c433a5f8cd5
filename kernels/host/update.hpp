// SPDX-License-Identifier: Apache-2.0
#pragma once
// The loop over the segments of a shard that the optimizers of the host share.

#include <algorithm>

#include "kernels/host/convert.hpp"
#include "kernels/host/parallel.hpp"
#include "kernels/update.hpp"

namespace tessera::kernels::host {

/// Calls f(first, count) for ranges of the segment, over this rank's threads; f updates elements [first, first + count)
/// of the shard. The low-precision copy is written block by block while the block is in L1.
template <class F>
void update_segment(const UpdateArgs& args, const UpdateSegment& segment, const F& f) {
  constexpr std::int64_t grain = 4096;  // elements
  parallel_ranges(segment.end - segment.begin, grain, [&](std::int64_t first, std::int64_t last) {
    const std::int64_t block = args.copy ? grain : last - first;
    for (std::int64_t begin = first; begin < last; begin += block) {
      const std::int64_t n = std::min(block, last - begin), at = segment.begin + begin;
      f(at, n);
      if (!args.copy) continue;
      const float* param = args.param.as<float>() + at;
      if (args.copy.dtype == DType::bf16) convert().narrow(param, args.copy.as<bf16>() + at, n);
      else convert().narrow(param, args.copy.as<f16>() + at, n);
    }
  });
}

}  // namespace tessera::kernels::host
