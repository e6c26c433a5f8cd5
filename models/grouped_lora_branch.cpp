// SPDX-License-Identifier: Apache-2.0
// GroupedLoraBranch: as LoraBranch, with grouped GEMMs.
#include "models/grouped_lora_branch.hpp"

namespace tessera::models {

GroupedLoraBranch::Scratch GroupedLoraBranch::scratch(ScratchAllocator& allocator, std::int64_t rows,
                                                      DType dtype) const {
  Scratch w;
  w.low = allocator.take(dtype, {rows, rank_});
  w.dlow = allocator.take(dtype, {rows, rank_});
  return w;
}

std::size_t GroupedLoraBranch::workspace_bytes(std::int64_t rows, DType dtype) const {
  return bytes_of([&](ScratchAllocator& allocator) { (void)scratch(allocator, rows, dtype); });
}

/// low = A·x
void GroupedLoraBranch::compute_low(const Args& args, const Scratch& w) const {
  kernels::grouped_gemm({.offsets = args.offsets,
                         .a = args.x,
                         .b = a_.of(args.params),
                         .c = w.low,
                         .trans_b = true,
                         .stride_a = args.stride_x},
                        args.stream);
}

/// dlow = s·dy·B
void GroupedLoraBranch::gradient_of_low(const Args& args, const Scratch& w) const {
  kernels::grouped_gemm({.offsets = args.offsets,
                         .a = args.y,
                         .b = b_.of(args.params),
                         .c = w.dlow,
                         .alpha = scale_,
                         .stride_a = args.stride_y},
                        args.stream);
}

void GroupedLoraBranch::forward(const Args& args) const {
  ScratchAllocator allocator(args.workspace);
  const Scratch w = scratch(allocator, args.x.shape[0], args.x.dtype);
  compute_low(args, w);
  kernels::grouped_gemm({.offsets = args.offsets,
                         .a = w.low,
                         .b = b_.of(args.params),
                         .c = args.y,
                         .trans_b = true,
                         .alpha = scale_,
                         .add = true,
                         .stride_c = args.stride_y},
                        args.stream);
}

void GroupedLoraBranch::backward_params(const Args& args) const {
  const int of_a = a_.first_wanted(args.grads), of_b = b_.first_wanted(args.grads);
  if (of_a < 0 && of_b < 0) return;
  ScratchAllocator allocator(args.workspace);
  const Scratch w = scratch(allocator, args.x.shape[0], args.x.dtype);
  if (of_b >= 0) {  // dB = s·dyᵀ·low
    compute_low(args, w);
    kernels::grouped_gemm_gradient({.offsets = args.offsets,
                                    .a = args.y,
                                    .b = w.low,
                                    .c = b_.of(args.grads.views),
                                    .alpha = scale_,
                                    .add = args.grads.adds(of_b),
                                    .stride_a = args.stride_y},
                                   args.stream);
  }
  if (of_a < 0) return;
  gradient_of_low(args, w);
  kernels::grouped_gemm_gradient({.offsets = args.offsets,
                                  .a = w.dlow,
                                  .b = args.x,
                                  .c = a_.of(args.grads.views),
                                  .add = args.grads.adds(of_a),
                                  .stride_b = args.stride_x},
                                 args.stream);
}

void GroupedLoraBranch::backward_input(const Args& args) const {
  ScratchAllocator allocator(args.workspace);
  const Scratch w = scratch(allocator, args.x.shape[0], args.x.dtype);
  gradient_of_low(args, w);
  kernels::grouped_gemm({.offsets = args.offsets,
                         .a = w.dlow,
                         .b = a_.of(args.params),
                         .c = args.x,
                         .add = true,
                         .stride_c = args.stride_x},
                        args.stream);
}

double GroupedLoraBranch::backward_flops_per_row(const Wanted& wanted) const {
  const double of_in = 2.0 * static_cast<double>(rank_ * in_), of_out = 2.0 * static_cast<double>(rank_ * out_);
  const double of_a = a_.part_wanted(wanted), of_b = b_.part_wanted(wanted);
  return of_b * of_out + (of_a > 0 || wanted.dx() ? of_out : 0.0) + of_a * of_in + (wanted.dx() ? of_in : 0.0);
}

}  // namespace tessera::models
