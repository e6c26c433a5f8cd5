// SPDX-License-Identifier: Apache-2.0
#include "kernels/rope.hpp"

#include "kernels/cuda/ops.hpp"
#include "kernels/cuda/rope_at_positions.hpp"
#include "kernels/host/ops.hpp"

namespace tessera::kernels {

void rope_table(const RopeTableArgs& args, StreamView stream) {
  const auto half = static_cast<std::int64_t>(args.inv_freq.size());
  TESSERA_ASSERT(args.table.shape.rank() == 2 && args.table.shape[1] == 2 * half, "table %s",
                 args.table.shape.str().c_str());
  TESSERA_ASSERT(!args.positions || args.positions.numel() == args.table.shape[0]);
  TESSERA_DISPATCH(args.table, rope_table, args);
}

void rope(const RopeArgs& args, StreamView stream) {
  const std::int64_t d = args.head_dim;
  TESSERA_ASSERT(d > 0 && args.x.shape.rank() == 2 && args.x.shape[1] % d == 0 && args.table.shape.rank() == 2 &&
                     args.table.shape[1] <= d && args.table.shape[1] % 2 == 0 &&
                     args.table.dtype == stat_dtype(args.x.dtype),
                 "x %s, table %s, heads of %ld", args.x.shape.str().c_str(), args.table.shape.str().c_str(), d);
  TESSERA_ASSERT(args.table.shape[0] > 0 && (!args.positions || args.positions.numel() == args.x.shape[0]));
  TESSERA_DISPATCH(args.x, rope, args);
}

void rope_at_positions(const RopeTableArgs& table, const RopeArgs& args, StreamView stream) {
  TESSERA_ASSERT(table.positions && !args.positions && args.table.data == table.table.data &&
                     table.table.shape[0] == args.x.shape[0],
                 "table %s, x %s", table.table.shape.str().c_str(), args.x.shape.str().c_str());
  if constexpr (cuda_built)
    if (is_on_cuda(args.x)) return cuda::rope_at_positions(table, args, stream);
  rope_table(table, stream);
  rope(args, stream);
}

}  // namespace tessera::kernels
