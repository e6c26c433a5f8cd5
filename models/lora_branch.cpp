// SPDX-License-Identifier: Apache-2.0
// LoraBranch: A·x is not saved; backward computes it again, from the input that the gradient of A needs anyway.
#include "models/lora_branch.hpp"

#include <algorithm>

#include "kernels/dropout.hpp"
#include "kernels/gemm.hpp"
#include "kernels/grouped_gemm.hpp"
#include "models/tensor_split.hpp"
#include "runtime/base/error.hpp"
#include "runtime/base/rng.hpp"

namespace tessera::models {

void LoraBranch::split_outputs(const TensorSplit& over, const std::vector<std::int64_t>& sections) {
  out_ = over.part(out_, "outputs of an adapter");
  for (std::int64_t e = 0; e < b_.groups; ++e) over.divide(b_.at(e), 0, sections);
}

void LoraBranch::split_vocabulary(const TensorSplit& over) {
  vocabulary_ = over.vocabulary(out_);
  out_ = vocabulary_.largest();
  over.divide_vocabulary(b_.first, 0);
}

void LoraBranch::split_inputs(const TensorSplit& over) {
  in_ = over.part(in_, "inputs of an adapter");
  parts_ = over.ranks();
  if (dropout_ > 0 && in_ % kernels::dropout_columns != 0)
    throw Error(
        ExitCode::usage,
        strfmt("lora_dropout %g with --tensor_parallel_size %d: its masks are of %d numbers, and a rank has %ld of "
               "the inputs of a matrix",
               dropout_, parts_, kernels::dropout_columns, in_),
        "tensor_parallel_size, lora_dropout", "Add --lora_dropout 0, or choose a smaller --tensor_parallel_size");
  for (std::int64_t e = 0; e < a_.groups; ++e) over.divide(a_.at(e), 1);
}

TensorView LoraBranch::own_b(const Args& args) const { return own_rows(at(args.params, b_.first), args); }

TensorView LoraBranch::own_gradient_of_b(const Args& args) const {
  const TensorView& all = args.grads[b_.first];
  if (vocabulary_.is_split())
    return vocabulary_.own_gradient(all, args.context.tensor_rank, args.grads.adds(b_.first), args.stream);
  if (repeats_ > 0 && !args.grads.adds(b_.first)) clear(all, args.stream);
  return own_rows(all, args);
}

LoraBranch::Scratch LoraBranch::scratch(ScratchAllocator& allocator, std::int64_t rows, DType dtype) const {
  Scratch w;
  w.low = allocator.take(dtype, {rows, rank_});
  w.dlow = allocator.take(dtype, {rows, rank_});
  if (dropout_ > 0) w.dropped = allocator.take(dtype, {rows, in_});
  return w;
}

std::size_t LoraBranch::workspace_bytes(std::int64_t rows, DType dtype) const {
  return bytes_of([&](ScratchAllocator& allocator) { (void)scratch(allocator, rows, dtype); });
}

void LoraBranch::mask(const Args& args, const TensorView& from, const TensorView& to, Write write) const {
  const DropoutState& state = *args.context.dropout;
  const auto of_run = philox(state.seed, key_);
  const auto words =
      philox(static_cast<std::uint64_t>(of_run[1]) << 32 | of_run[0], static_cast<std::uint64_t>(state.step));
  const std::int64_t rows = from.shape[0];
  std::int64_t at = 0, first = state.first_token, skipped = state.skipped;
  const auto mask_range = [&](std::int64_t tokens, std::int64_t place) {
    const std::int64_t before = std::min(skipped, tokens), count = std::min(tokens - before, rows - at);
    skipped -= before;
    if (count == 0) return;
    kernels::dropout({.x = from.rows(at, count),
                      .y = to.rows(at, count),
                      .p = dropout_,
                      .key = static_cast<std::uint64_t>(words[1]) << 32 | words[0],
                      .first_row = place + before,
                      .first_column = parts_ > 1 ? args.context.tensor_rank * in_ : 0,
                      .columns = in_ * parts_,
                      .accumulate = write == Write::add},
                     args.stream);
    at += count;
  };
  for (; state.second_half > 0 && at < rows; first += state.row_stride) {
    mask_range(state.row_tokens / 2, first);
    mask_range(state.row_tokens / 2, first + state.second_half);
  }
  for (const std::int64_t tokens : state.row_lengths) mask_range(tokens, first), first += state.row_stride;
  const bool is_last = !state.row_lengths.empty() || state.row_tokens == state.row_stride;  // one range is left
  const std::int64_t adjacent = is_last ? rows - at + skipped : state.row_tokens;
  for (; at < rows; first += state.row_stride) mask_range(adjacent, first);
}

/// The input of A.
TensorView LoraBranch::dropped(const Args& args, const Scratch& w) const {
  if (dropout_ == 0 || args.context.dropout == nullptr) return args.x;
  mask(args, args.x, w.dropped, Write::overwrite);
  return w.dropped;
}

void LoraBranch::multiply(const Args& args, const Product& of) const {
  if (args.offsets)
    return kernels::grouped_gemm({.offsets = args.offsets,
                                  .a = of.a,
                                  .b = of.matrix.of(args.params),
                                  .c = of.c,
                                  .trans_b = of.trans,
                                  .alpha = of.alpha,
                                  .add = of.add,
                                  .stride_a = of.stride_a,
                                  .stride_c = of.stride_c},
                                 args.stream);
  kernels::gemm({.a = of.a,
                 .b = &of.matrix == &b_ ? own_b(args) : at(args.params, a_.first),
                 .c = of.c,
                 .trans_b = of.trans,
                 .alpha = of.alpha,
                 .beta = of.add ? 1.0 : 0.0,
                 .stride_a = of.stride_a,
                 .stride_c = of.stride_c},
                args.stream);
}

void LoraBranch::differentiate(const Args& args, const Gradient& of) const {
  const bool adds = args.grads.adds(of.matrix.first_wanted(args.grads));
  if (args.offsets)
    return kernels::grouped_gemm_gradient({.offsets = args.offsets,
                                           .a = of.a,
                                           .b = of.b,
                                           .c = of.matrix.of(args.grads.views),
                                           .alpha = of.alpha,
                                           .add = adds,
                                           .stride_a = of.stride_a,
                                           .stride_b = of.stride_b},
                                          args.stream);
  kernels::gemm({.a = of.a,
                 .b = of.b,
                 .c = &of.matrix == &b_ ? own_gradient_of_b(args) : args.grads[a_.first],
                 .trans_a = true,
                 .alpha = of.alpha,
                 .beta = adds ? 1.0 : 0.0,
                 .stride_a = of.stride_a,
                 .stride_b = of.stride_b},
                args.stream);
}

void LoraBranch::compute_low(const Args& args, const TensorView& x, const Scratch& w) const {
  multiply(args, {.matrix = a_, .a = x, .c = w.low, .trans = true, .stride_a = args.x_stride});
}

void LoraBranch::gradient_of_low(const Args& args, const Scratch& w) const {
  multiply(args, {.matrix = b_, .a = args.y, .c = w.dlow, .alpha = scale_, .stride_a = args.y_stride});
}

void LoraBranch::forward(const Args& args) const {
  ScratchAllocator allocator(args.context.lora);
  const Scratch w = scratch(allocator, args.x.shape[0], args.x.dtype);
  const TensorView x = dropped(args, w);
  TESSERA_ASSERT(args.x_stride == 0 || x.data == args.x.data, "dropout of columns of a wider matrix");
  compute_low(args, x, w);
  multiply(
      args,
      {.matrix = b_, .a = w.low, .c = args.y, .trans = true, .alpha = scale_, .add = true, .stride_c = args.y_stride});
}

void LoraBranch::backward_params(const Args& args) const {
  const bool of_a = a_.first_wanted(args.grads) >= 0, of_b = b_.first_wanted(args.grads) >= 0;
  if (!of_a && !of_b) return;
  ScratchAllocator allocator(args.context.lora);
  const Scratch w = scratch(allocator, args.x.shape[0], args.x.dtype);
  const TensorView x = dropped(args, w);
  if (of_b) {  // dB = s·dyᵀ·low
    compute_low(args, x, w);
    differentiate(args, {.matrix = b_, .a = args.y, .b = w.low, .alpha = scale_, .stride_a = args.y_stride});
  }
  if (!of_a) return;
  gradient_of_low(args, w);
  differentiate(args, {.matrix = a_, .a = w.dlow, .b = x, .stride_b = args.x_stride});
}

void LoraBranch::backward_input(const Args& args) const {
  ScratchAllocator allocator(args.context.lora);
  const Scratch w = scratch(allocator, args.x.shape[0], args.x.dtype);
  gradient_of_low(args, w);
  const bool drops = dropout_ > 0 && args.context.dropout != nullptr;
  multiply(args,
           {.matrix = a_, .a = w.dlow, .c = drops ? w.dropped : args.x, .add = !drops, .stride_c = args.x_stride});
  if (drops) mask(args, w.dropped, args.x, Write::add);
}

LoraBranch::Half LoraBranch::half(ScratchAllocator& allocator, std::int64_t rows, DType dtype, bool trains) const {
  Half h;
  h.low = allocator.take(dtype, {rows, rank_});
  if (!trains) return h;
  h.dlow = allocator.take(dtype, {rows, rank_});
  h.dropped = allocator.take(dtype, {rows, in_});
  return h;
}

kernels::LinearCrossEntropyArgs::LowRank LoraBranch::forward_half(const Args& args, const Half& half,
                                                                  bool wanted_low) const {
  if (half.dropped) {
    if (dropout_ > 0 && args.context.dropout != nullptr) mask(args, args.x, half.dropped, Write::overwrite);
    else copy(args.x, half.dropped, args.stream);
  }
  kernels::gemm(
      {.a = half.dropped ? half.dropped : args.x, .b = at(args.params, a_.first), .c = half.low, .trans_b = true},
      args.stream);
  const bool trains = half.dropped && !args.grads.views.empty();
  return {.x = half.low,
          .weight = own_b(args),
          .dx = trains && wanted_low ? half.dlow : TensorView{},
          .dweight = trains && args.grads[b_.first] ? own_gradient_of_b(args) : TensorView{},
          .accumulate = trains && args.grads.adds(b_.first),
          .alpha = scale_};
}

void LoraBranch::backward_half(const Args& args, const Half& half) const {
  if (args.grads[a_.first])
    kernels::gemm({.a = half.dlow,
                   .b = half.dropped,
                   .c = args.grads[a_.first],
                   .trans_a = true,
                   .beta = args.grads.adds(a_.first) ? 1.0 : 0.0},
                  args.stream);
  if (!args.x) return;
  const bool drops = dropout_ > 0 && args.context.dropout != nullptr;
  kernels::gemm(
      {.a = half.dlow, .b = at(args.params, a_.first), .c = drops ? half.dropped : args.x, .beta = drops ? 0.0 : 1.0},
      args.stream);
  if (drops) mask(args, half.dropped, args.x, Write::add);
}

double LoraBranch::backward_flops_per_row(const Wanted& wanted) const {
  const double of_in = 2.0 * static_cast<double>(rank_ * in_), of_out = 2.0 * static_cast<double>(rank_ * out_);
  const double of_a = a_.part_wanted(wanted), of_b = b_.part_wanted(wanted);
  return of_b * of_out + (of_a > 0 || wanted.dx() ? of_out : 0.0) + of_a * of_in + (wanted.dx() ? of_in : 0.0);
}

}  // namespace tessera::models
