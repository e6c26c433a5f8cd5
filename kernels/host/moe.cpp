// SPDX-License-Identifier: Apache-2.0
// Mixture of experts. Threads split tokens, rows or experts; every sum is taken by one of them, in order.
#include "kernels/moe.hpp"

#include <algorithm>
#include <cmath>

#include "kernels/host/embedding.hpp"
#include "kernels/host/fp32_accumulator.hpp"
#include "kernels/host/moe.hpp"
#include "kernels/host/ops.hpp"
#include "kernels/host/parallel.hpp"

namespace tessera::kernels::host {
namespace {

constexpr std::int64_t moe_grain = 16;  // tokens, rows

/// The K largest of p, descending, the lowest index among equals.
template <class T>
void choose(const T* p, std::int64_t experts, std::int64_t k, std::int32_t* chosen) {
  for (std::int64_t i = 0; i < k; ++i) {
    std::int64_t best = -1;
    for (std::int64_t e = 0; e < experts; ++e) {
      if (std::find(chosen, chosen + i, static_cast<std::int32_t>(e)) != chosen + i) continue;
      if (best < 0 || p[e] > p[best]) best = e;
    }
    chosen[i] = static_cast<std::int32_t>(best);
  }
}

template <class T>
void weigh_choice(const T* p, const std::int32_t* chosen, std::int64_t k, bool normalize, T* weights) {
  T sum = 0;
  for (std::int64_t i = 0; i < k; ++i) sum += weights[i] = p[chosen[i]];
  if (!normalize) return;
  for (std::int64_t i = 0; i < k; ++i) weights[i] /= sum;
}

/// Chooses by the logits, which have no ties where probabilities round to one number.
template <class T>
void choose_by_logits(const T* logits, std::int64_t experts, std::int64_t k, std::int32_t* chosen, T* weights) {
  choose(logits, experts, k, chosen);
  for (std::int64_t i = 0; i < k; ++i) weights[i] = T(1) / (T(1) + std::exp(-logits[chosen[i]]));
}

template <class T>
void statistics(const RouteArgs& args) {
  const std::int64_t tokens = args.probs.shape[0], experts = args.probs.shape[1], choices = args.experts.numel();
  double *counts = args.counts.as<double>(), *sums = args.sums.as<double>();
  std::fill_n(counts, experts, 0.0);
  const PaddingMap padding = padding_of(args.fields);
  const auto* chosen = args.experts.as<std::int32_t>();
  for (std::int64_t i = 0; i < choices; ++i) counts[chosen[i]] += padding.has(i / args.experts.shape[1]) ? 0 : 1;
  const T* p = args.probs.as<T>();
  parallel_ranges(experts, moe_grain, [&](std::int64_t begin, std::int64_t end) {
    std::fill(sums + begin, sums + end, 0.0);
    for (std::int64_t t = 0; t < tokens; ++t) {
      if (padding.has(t)) continue;
      for (std::int64_t e = begin; e < end; ++e) sums[e] += static_cast<double>(p[t * experts + e]);
    }
  });
}

}  // namespace

void route(const RouteArgs& args) {
  const std::int64_t experts = args.probs.shape[1], k = args.experts.shape[1];
  dispatch_float(args.probs.dtype, [&]<class T>(T) {
    const T* logits = args.logits.as<T>();
    T *probs = args.probs.as<T>(), *weights = args.weights.as<T>();
    auto* chosen = args.experts.as<std::int32_t>();
    const auto& kernel = moe<T>();
    parallel_ranges(args.probs.shape[0], moe_grain, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t t = begin; t < end; ++t) {
        T* const p = probs + t * experts;
        const bool sigmoids = args.weigh == ExpertWeights::sigmoids;
        if (sigmoids) choose_by_logits(logits + t * experts, experts, k, chosen + t * k, weights + t * k);
        kernel.softmax(logits + t * experts, p, experts);
        if (sigmoids) continue;
        choose(p, experts, k, chosen + t * k);
        weigh_choice(p, chosen + t * k, k, args.weigh == ExpertWeights::normalized, weights + t * k);
      }
    });
    if (args.counts) statistics<T>(args);
  });
}

void route_backward(const RouteBackwardArgs& args) {
  const std::int64_t experts = args.probs.shape[1], k = args.experts.shape[1];
  const double* balance = args.balance ? args.balance.as<double>() : nullptr;
  const PaddingMap padding = padding_of(args.fields);
  dispatch_dtype(args.dlogits.dtype, [&]<class T>(T) {
    using A = Acc<T>;
    const A *probs = args.probs.as<A>(), *weights = args.weights.as<A>(), *dweights = args.dweights.as<A>();
    const auto* chosen = args.experts.as<std::int32_t>();
    T* const dlogits = args.dlogits.as<T>();
    const auto& kernel = moe<T>();
    parallel_ranges(args.probs.shape[0], moe_grain, [&](std::int64_t begin, std::int64_t end) {
      A dp[max_experts];
      for (std::int64_t t = begin; t < end; ++t) {
        if (padding.has(t)) {
          std::fill_n(dlogits + t * experts, experts, T(0.0F));
          continue;
        }
        const A *p = probs + t * experts, *w = weights + t * k, *dw = dweights + t * k;
        for (std::int64_t e = 0; e < experts; ++e) dp[e] = balance ? static_cast<A>(balance[e]) : A(0);
        A sum = 0, mean = 0;  // of the chosen probabilities; Σ dw·w
        for (std::int64_t i = 0; i < k; ++i) sum += p[chosen[t * k + i]], mean += dw[i] * w[i];
        const bool sigmoids = args.weigh == ExpertWeights::sigmoids;
        for (std::int64_t i = 0; i < k && !sigmoids; ++i)
          dp[chosen[t * k + i]] += args.weigh == ExpertWeights::normalized ? (dw[i] - mean) / sum : dw[i];
        kernel.softmax_backward(p, dp, dlogits + t * experts, experts);
        for (std::int64_t i = 0; i < k && sigmoids; ++i) {
          T& d = dlogits[t * experts + chosen[t * k + i]];
          d = T(static_cast<A>(d) + dw[i] * w[i] * (1 - w[i]));
        }
      }
    });
  });
}

void make_dispatch(const TensorView& experts, const Dispatch& dispatch) {
  const std::int64_t slots = experts.numel(), count = dispatch.offsets.numel() - 1;
  const auto* expert = experts.as<std::int32_t>();
  auto *slot_of = dispatch.slots.as<std::int32_t>(), *row_of = dispatch.rows.as<std::int32_t>(),
       *offsets = dispatch.offsets.as<std::int32_t>();
  std::fill_n(offsets, count + 1, 0);
  for (std::int64_t i = 0; i < slots; ++i) ++offsets[expert[i] + 1];
  for (std::int64_t e = 0; e < count; ++e) offsets[e + 1] += offsets[e];
  for (std::int64_t i = 0; i < slots; ++i) {  // offsets[e] advances over the rows of e
    const std::int32_t row = offsets[expert[i]]++;
    row_of[i] = row;
    slot_of[row] = static_cast<std::int32_t>(i);
  }
  for (std::int64_t e = count; e > 0; --e) offsets[e] = offsets[e - 1];  // and is now the begin of e + 1
  offsets[0] = 0;
}

void gather_rows(const TensorView& x, const Dispatch& dispatch, const TensorView& y) {
  const std::int64_t columns = x.shape[1], k = x.shape[0] > 0 ? y.shape[0] / x.shape[0] : 1;
  const auto* slot_of = dispatch.slots.as<std::int32_t>();
  dispatch_dtype(x.dtype, [&]<class T>(T) {
    const T* from = x.as<T>();
    T* to = y.as<T>();
    const auto copy = embedding<T>().copy;
    parallel_ranges(y.shape[0], moe_grain, [&](std::int64_t begin, std::int64_t end) {
      const auto token = [&](std::int64_t row) { return from + slot_of[row] / k * columns; };
      for (std::int64_t row = begin; row < end; ++row)
        copy(token(row), to + row * columns, columns, token(std::min(row + 1, end - 1)));
    });
  });
}

void combine_rows(const CombineArgs& args) {
  const std::int64_t columns = args.x.shape[1], k = args.y.shape[0] > 0 ? args.x.shape[0] / args.y.shape[0] : 1;
  const auto* row_of = args.dispatch.rows.as<std::int32_t>();
  dispatch_dtype(args.x.dtype, [&]<class T>(T) {
    const T* x = args.x.as<T>();
    const Acc<T>* weights = args.weights ? args.weights.as<Acc<T>>() : nullptr;
    T* y = args.y.as<T>();
    const auto& kernel = moe<T>();
    parallel_ranges(args.y.shape[0], moe_grain, [&](std::int64_t first, std::int64_t last) {
      for (std::int64_t t = first; t < last; ++t)
        with_fp32_accumulator(y + t * columns, columns, args.accumulate ? PreviousValues::keep : PreviousValues::ignore,
                              [&](std::int64_t begin, std::int64_t end, auto* sums) {
                                for (std::int64_t slot = t * k; slot < (t + 1) * k; ++slot) {
                                  const std::int64_t next = std::min(slot + 1, last * k - 1);
                                  kernel.scale(x + row_of[slot] * columns + begin, weights ? weights[slot] : Acc<T>(1),
                                               sums, end - begin, args.accumulate || slot > t * k,
                                               x + row_of[next] * columns + begin);
                                }
                              });
    });
  });
}

void combine_weights_backward(const CombineWeightsBackwardArgs& args) {
  const std::int64_t columns = args.a.shape[1];
  const auto* slot_of = args.dispatch.slots.as<std::int32_t>();
  dispatch_dtype(args.a.dtype, [&]<class T>(T) {
    T *a = args.a.as<T>(), *b = args.b ? args.b.as<T>() : nullptr;
    auto* dweights = args.b ? args.dweights.as<Acc<T>>() : nullptr;
    const auto* weights = args.weights.as<Acc<T>>();
    const auto& kernel = moe<T>();
    parallel_ranges(args.a.shape[0], moe_grain, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t row = begin; row < end; ++row) {
        T* const x = a + row * columns;
        if (b != nullptr) {
          T* const y = b + row * columns;
          dweights[slot_of[row]] = kernel.dot(x, y, columns);
          kernel.multiply(y, weights[slot_of[row]], columns);
        }
        kernel.multiply(x, weights[slot_of[row]], columns);
      }
    });
  });
}

}  // namespace tessera::kernels::host
