// SPDX-License-Identifier: Apache-2.0
// Biases of groups over this rank's threads: by rows, and gradients by columns, each sum by one thread in order.
#include "kernels/host/group_bias.hpp"

#include <algorithm>

#include "kernels/host/bias.hpp"
#include "kernels/host/fp32_accumulator.hpp"
#include "kernels/host/moe.hpp"
#include "kernels/host/parallel.hpp"

namespace tessera::kernels::host {
namespace {

constexpr std::int64_t bias_rows = 16, bias_columns = 64;  // of a thread at least

/// Calls f(group, begin, end) for each group's rows in [first, last).
template <class F>
void for_groups(const TensorView& offsets, std::int64_t first, std::int64_t last, const F& f) {
  if (!offsets) return f(std::int64_t{0}, first, last);
  const auto* const at = offsets.as<std::int32_t>();
  for (std::int64_t e = 0; e + 1 < offsets.numel(); ++e) {
    const std::int64_t begin = std::max<std::int64_t>(first, at[e]), end = std::min<std::int64_t>(last, at[e + 1]);
    if (begin < end) f(e, begin, end);
  }
}

}  // namespace

void add_group_bias(const AddGroupBiasArgs& args) {
  const std::int64_t columns = args.y.shape[1];
  dispatch_dtype(args.bias.dtype, [&]<class T>(T) {
    const T* const bias_of = args.bias.as<T>();
    dispatch_gradient_dtype<T>(args.y.dtype, [&]<class Y>(Y) {
      Y* const y = args.y.as<Y>();
      parallel_ranges(args.y.shape[0], bias_rows, [&](std::int64_t first, std::int64_t last) {
        for_groups(args.offsets, first, last, [&](std::int64_t e, std::int64_t begin, std::int64_t end) {
          const T* const b = bias_of + e * columns;
          for (std::int64_t row = begin; row < end; ++row)
            if constexpr (std::is_same_v<T, Y>) bias<T>().add(b, y + row * columns, columns);
            else moe<T>().scale(b, Acc<T>(1), y + row * columns, columns, /*add=*/true, b);
        });
      });
    });
  });
}

void group_bias_gradient(const GroupBiasGradientArgs& args) {
  const std::int64_t columns = args.dy.shape[1], groups = args.dbias.shape[0];
  const auto* const offsets = args.dispatch.offsets.as<std::int32_t>();
  const auto* const slot_of = args.weights ? args.dispatch.slots.as<std::int32_t>() : nullptr;
  dispatch_dtype(args.dy.dtype, [&]<class T>(T) {
    const T* const dy = args.dy.as<T>();
    const auto* const weights = args.weights ? args.weights.as<Acc<T>>() : nullptr;
    dispatch_gradient_dtype<T>(args.dbias.dtype, [&]<class G>(G) {
      G* const dbias = args.dbias.as<G>();
      const auto sum_group = [&](std::int64_t e, std::int64_t first, std::int64_t last) {
        with_fp32_accumulator(
            dbias + e * columns + first, last - first, args.accumulate ? PreviousValues::keep : PreviousValues::ignore,
            [&](std::int64_t begin, std::int64_t end, auto* sums) {
              if (!args.accumulate) std::fill_n(sums, end - begin, 0);
              for (std::int64_t row = offsets[e]; row < offsets[e + 1]; ++row) {
                const T* const x = dy + row * columns + first + begin;
                moe<T>().scale(x, weights != nullptr ? weights[slot_of[row]] : Acc<T>(1), sums, end - begin,
                               /*add=*/true, row + 1 < offsets[e + 1] ? x + columns : x);
              }
            });
      };
      const std::int64_t parts = (columns + bias_columns - 1) / bias_columns;
      parallel_parts(groups * parts, [&](std::int64_t part) {
        const std::int64_t first = part % parts * bias_columns;
        sum_group(part / parts, first, std::min(columns, first + bias_columns));
      });
    });
  });
}

void add_group_bias_weights(const GroupBiasWeightsArgs& args) {
  const std::int64_t columns = args.dy.shape[1];
  const auto* const slot_of = args.dispatch.slots.as<std::int32_t>();
  dispatch_dtype(args.dy.dtype, [&]<class T>(T) {
    const T *const dy = args.dy.as<T>(), *const bias_of = args.bias.as<T>();
    auto* const dweights = args.dweights.as<Acc<T>>();
    parallel_ranges(args.dy.shape[0], bias_rows, [&](std::int64_t first, std::int64_t last) {
      for_groups(args.dispatch.offsets, first, last, [&](std::int64_t e, std::int64_t begin, std::int64_t end) {
        for (std::int64_t row = begin; row < end; ++row)
          dweights[slot_of[row]] += moe<T>().dot(bias_of + e * columns, dy + row * columns, columns);
      });
    });
  });
}

}  // namespace tessera::kernels::host
