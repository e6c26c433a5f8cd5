// SPDX-License-Identifier: Apache-2.0
#pragma once
// AdamW (kernels/adamw.hpp) whose moments are stored in 8 bits, block-wise (kernels/dynamic_code.hpp): exp_avg by the
// signed code, exp_avg_sq by the unsigned one. A step reads the moments as value · magnitude, updates them and the
// parameter in fp32 by AdamW's operations, and stores the moments again, each block with its new magnitude. The same
// bits on every instruction set and device and for any number of threads. Memory of zeros is moments of zero.

#include "kernels/adamw.hpp"
#include "kernels/dynamic_code.hpp"

namespace tessera::kernels {

/// A moment of n elements.
struct QuantizedMoment {
  TensorView codes;   // (n) u8
  TensorView absmax;  // (ceil(n / 256)) fp32
};

struct AdamW8BitArgs {
  UpdateArgs update;  // segments begin at multiples of 256; what follows the end of one in its last block is padding
  QuantizedMoment exp_avg, exp_avg_sq;  // updated
  const AdamWScalars* scalars = nullptr;
};
/// One launch on a device, up to 64 segments.
void adamw_8bit(const AdamW8BitArgs& args, StreamView stream);

}  // namespace tessera::kernels
