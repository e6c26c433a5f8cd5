// SPDX-License-Identifier: Apache-2.0
#include "kernels/convert.hpp"

#include "kernels/cuda/ops.hpp"
#include "kernels/host/ops.hpp"

namespace tessera::kernels {
namespace {

bool is_half_type(DType dtype) { return dtype == DType::bf16 || dtype == DType::f16; }

void check(const ConvertArgs& args) {
  const DType from = args.from.dtype, to = args.to.dtype;
  TESSERA_ASSERT((from == DType::f32 && is_half_type(to)) || (is_half_type(from) && to == DType::f32),
                 "no cast from %s to %s", name_of(from), name_of(to));
  TESSERA_ASSERT(args.from.numel() == args.to.numel(), "from %s, to %s", args.from.shape.str().c_str(),
                 args.to.shape.str().c_str());
}

}  // namespace

void convert(const ConvertArgs& args, StreamView stream) {
  check(args);
  TESSERA_DISPATCH(args.from, convert, args);
}

void convert_serial(const ConvertArgs& args, StreamView stream) {
  check(args);
  if constexpr (cuda_built)
    if (is_on_cuda(args.from)) return cuda::convert(args, stream);
  host::convert_serial(args);
}

}  // namespace tessera::kernels
