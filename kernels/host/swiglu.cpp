// SPDX-License-Identifier: Apache-2.0
// SwiGLU and GeGLU over this rank's threads: by elements, or, of columns of a wider matrix, by rows.
#include "kernels/swiglu.hpp"

#include "kernels/host/ops.hpp"
#include "kernels/host/parallel.hpp"
#include "kernels/host/swiglu.hpp"
#include "kernels/row_stride.hpp"

namespace tessera::kernels::host {
namespace {

/// Calls f(first row, last row) on ranges of rows of about as many elements as parallel_elements has at least.
template <class F>
void parallel_rows(const Shape& shape, const F& f) {
  constexpr std::int64_t least = 4096;
  parallel_ranges(shape[0], shape[1] < least ? least / (shape[1] + 1) + 1 : 1, f);
}

template <class T>
const Swiglu<T>& gated(GateActivation activation) {
  return activation == GateActivation::gelu ? geglu<T>() : swiglu<T>();
}

}  // namespace

void swiglu_forward(const SwigluForwardArgs& args) {
  dispatch_dtype(args.gate.dtype, [&]<class T>(T) {
    const T *const gate = args.gate.as<T>(), *const up = args.up.as<T>();
    T* const y = args.y.as<T>();
    if (args.stride == 0 && args.stride_y == 0)
      return parallel_elements(args.gate.numel(), gated<T>(args.activation).forward, gate, up, y);
    const std::int64_t columns = args.gate.shape[1], stride = row_stride(args.gate, args.stride),
                       stride_y = row_stride(args.y, args.stride_y);
    parallel_rows(args.gate.shape, [&](std::int64_t first, std::int64_t last) {
      for (std::int64_t r = first; r < last; ++r)
        gated<T>(args.activation).forward(gate + r * stride, up + r * stride, y + r * stride_y, columns);
    });
  });
}

void swiglu_backward(const SwigluBackwardArgs& args) {
  dispatch_dtype(args.gate.dtype, [&]<class T>(T) {
    const T *const gate = args.gate.as<T>(), *const up = args.up.as<T>(), *const dy = args.dy.as<T>();
    T *const dgate = args.dgate.as<T>(), *const dup = args.dup.as<T>();
    if (args.stride == 0)
      return parallel_elements(args.gate.numel(), gated<T>(args.activation).backward, gate, up, dy, dgate, dup);
    const std::int64_t columns = args.gate.shape[1], stride = args.stride;
    parallel_rows(args.gate.shape, [&](std::int64_t first, std::int64_t last) {
      for (std::int64_t r = first; r < last; ++r)
        gated<T>(args.activation)
            .backward(gate + r * stride, up + r * stride, dy + r * columns, dgate + r * stride, dup + r * stride,
                      columns);
    });
  });
}

}  // namespace tessera::kernels::host
