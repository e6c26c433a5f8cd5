// SPDX-License-Identifier: Apache-2.0
#include "kernels/head_parts.hpp"

#include "kernels/cuda/head_parts.hpp"
#include "kernels/host/head_parts.hpp"
#include "kernels/operations.hpp"

namespace tessera::kernels {

static void check_head_parts(const HeadPartsArgs& args) {
  const HeadParts& of = args.of;
  TESSERA_ASSERT(divides_heads(of) && args.rows.dtype == args.parts.dtype && args.rows.shape.rank() == 2 &&
                     args.rows.shape[1] == of.width() &&
                     args.parts.numel() == of.parts * args.rows.shape[0] * of.part_width(),
                 "rows %s, %ld parts %s of %ld heads and %ld", args.rows.shape.str().c_str(), of.parts,
                 args.parts.shape.str().c_str(), of.heads, of.kv_heads);
}

void split_heads(const HeadPartsArgs& args, StreamView stream) {
  check_head_parts(args);
  TESSERA_DISPATCH(args.rows, split_heads, args);
}

void merge_heads(const HeadPartsArgs& args, StreamView stream) {
  check_head_parts(args);
  TESSERA_DISPATCH(args.rows, merge_heads, args);
}

}  // namespace tessera::kernels
