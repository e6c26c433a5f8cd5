// SPDX-License-Identifier: Apache-2.0
// Normal numbers over this rank's threads; a range may start at any element.
#include "kernels/host/init.hpp"

#include <algorithm>

#include "kernels/host/ops.hpp"
#include "kernels/host/parallel.hpp"

namespace tessera::kernels::host {
namespace {

/// Elements [first, first + count), first and count ≥ 0, of the sequence of `key`.
void normal_range(std::uint64_t key, std::int64_t first, std::int64_t count, double std, float* out) {
  const auto& table = init();
  const auto part_of_group = [&](std::int64_t group, std::int64_t from,
                                 std::int64_t to) {  // elements from … to of one group
    float four[4];
    table.normal(key, static_cast<std::uint64_t>(group), 1, std, four);
    std::copy(four + from, four + to, out);
    out += to - from;
    count -= to - from;
  };
  if (const std::int64_t skip = first % 4; skip != 0 && count > 0)
    part_of_group(first / 4, skip, std::min<std::int64_t>(4, skip + count));
  const std::int64_t group = (first + 3) / 4, groups = count / 4;
  table.normal(key, static_cast<std::uint64_t>(group), groups, std, out);
  out += 4 * groups;
  count -= 4 * groups;
  if (count > 0) part_of_group(group + groups, 0, count);
}

}  // namespace

void normals(const NormalArgs& args) {
  parallel_ranges(args.count, 4096, [&](std::int64_t begin, std::int64_t end) {
    normal_range(args.key, args.first + begin, end - begin, args.std, args.out + begin);
  });
}

}  // namespace tessera::kernels::host
