#pragma once
// Casts between fp32 and the two halves: exact one way, rounded to nearest even the other (runtime/base/half.hpp says
// how of NaN, infinity and subnormal numbers): the same bits on every instruction set.

#include "runtime/base/stream.hpp"
#include "runtime/base/tensor.hpp"

namespace tessera::kernels {

struct ConvertArgs {
  TensorView from;  // fp32 to bf16 or f16, or back
  TensorView to;    // as many elements; does not overlap `from`
};
/// Over this rank's threads.
void convert(const ConvertArgs& args, StreamView stream);
/// The same on the calling thread alone.
void convert_serial(const ConvertArgs& args, StreamView stream);

}  // namespace tessera::kernels
