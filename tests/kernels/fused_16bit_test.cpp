// SPDX-License-Identifier: Apache-2.0
// Fused kernels of bf16 and f16: linear_cross_entropy, mixture of experts, cached attention, and the 16-bit tree sum.
#include "kernels/attention_cache.hpp"
#include "kernels/linear_cross_entropy.hpp"
#include "kernels/moe.hpp"
#include "kernels/reduce.hpp"

#include <cstring>
#include <numeric>

#include "reference_16bit.hpp"

namespace tessera::kernels {
namespace {

TYPED_TEST_SUITE(SixteenBit, SixteenBitTypes);

std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }

/// Loss, dx and dweight of one head by loops in double, the gradient of the logits rounded to T before it is
/// multiplied.
template <class T>
struct HeadTruth {
  HeadTruth(const std::vector<T>& x, const std::vector<T>& w, const std::vector<std::int32_t>& targets, std::int64_t c,
            double scale)
      : dx(x.size()), dw(w.size()) {
    const auto n = static_cast<std::int64_t>(targets.size()), v = static_cast<std::int64_t>(w.size()) / c;
    std::vector<double> sum_dw(w.size()), logits(at(v));
    for (std::int64_t i = 0; i < n; ++i) {
      if (targets[at(i)] == ignore_index) continue;
      for (std::int64_t j = 0; j < v; ++j) {
        logits[at(j)] = 0;
        for (std::int64_t k = 0; k < c; ++k)
          logits[at(j)] += static_cast<double>(x[at(i * c + k)]) * static_cast<double>(w[at(j * c + k)]);
      }
      const double max = *std::max_element(logits.begin(), logits.end());
      double sum = 0;
      for (const double l : logits) sum += std::exp(l - max);
      loss += max + std::log(sum) - logits[at(targets[at(i)])];
      std::vector<double> row(at(c));
      for (std::int64_t j = 0; j < v; ++j) {
        const double p = std::exp(logits[at(j)] - max) / sum * scale - (j == targets[at(i)] ? scale : 0);
        const double d = static_cast<double>(T(static_cast<float>(p)));
        for (std::int64_t k = 0; k < c; ++k) {
          row[at(k)] += d * static_cast<double>(w[at(j * c + k)]);
          sum_dw[at(j * c + k)] += d * static_cast<double>(x[at(i * c + k)]);
        }
      }
      for (std::int64_t k = 0; k < c; ++k) dx[at(i * c + k)] = static_cast<float>(row[at(k)]);
    }
    for (std::size_t i = 0; i < dw.size(); ++i) dw[i] = static_cast<float>(sum_dw[i]);
  }
  double loss = 0;
  std::vector<float> dx, dw;
};

TYPED_TEST(SixteenBit, LinearCrossEntropy) {
  // (rows, vocabulary): more than a chunk of the vocabulary, more than a block of rows, neither.
  for (const auto& [n, v] : {std::pair<std::int64_t, std::int64_t>{33, 2309}, {1100, 67}, {5, 13}})
    for (const int num : {1, 3}) {
      const Setting setting(num);
      const std::int64_t c = 19;
      const double scale = 0.25;
      auto x = random_16bit<TypeParam>(n * c, 1), w = random_16bit<TypeParam>(v * c, 2, 0.5), dx = x, dw = w;
      std::vector<std::int32_t> targets(at(n));
      for (std::int64_t i = 0; i < n; ++i)
        targets[at(i)] = i % 7 == 3 ? ignore_index : static_cast<std::int32_t>(i * 31 % v);
      const HeadTruth<TypeParam> truth(x, w, targets, c, scale);
      Workspace workspace(linear_cross_entropy_workspace(n, v, dtype_of<TypeParam>::value));
      LossSums sums, eval;
      LinearCrossEntropyArgs args{.x = view(x, {n, c}),
                                  .weight = view(w, {v, c}),
                                  .targets = view(targets),
                                  .sums = &eval,
                                  .workspace = workspace.view()};
      linear_cross_entropy(args, host_stream);
      args.sums = &sums, args.loss_scale = &scale, args.dx = view(dx, {n, c}), args.dweight = view(dw, {v, c});
      linear_cross_entropy(args, host_stream);
      EXPECT_TRUE(workspace.intact());
      EXPECT_NEAR(sums.loss.value(), truth.loss, 1e-5 * truth.loss);
      EXPECT_NEAR(eval.loss.value(), truth.loss, 1e-5 * truth.loss);
      // A gradient of a logit next to a tie may round the other way.
      const double slack = 0.1 * half_epsilon<TypeParam>;
      expect_near_rounded(dx, truth.dx, slack);
      if (n < 1024) expect_near_rounded(dw, truth.dw, slack);  // otherwise once per block
      else EXPECT_LT(relative_error(dw, truth.dw), 1.1 * half_epsilon<TypeParam>);
      std::vector<float> mixed(dw.size(), 1.0F), plus = truth.dw;
      args.dweight = view(mixed, {v, c}), args.accumulate = true;
      linear_cross_entropy(args, host_stream);
      for (float& y : plus) y += 1;
      EXPECT_LT(relative_error(mixed, plus), slack);
      // Only one of the gradients, and dx over x: the same bits.
      std::vector<TypeParam> dx_alone = x, dw_alone = w;
      args.dweight = {}, args.dx = view(dx_alone, {n, c});
      linear_cross_entropy(args, host_stream);
      EXPECT_EQ(widened(dx_alone), widened(dx));
      args.dweight = view(dw_alone, {v, c}), args.accumulate = false, args.dx = {};
      linear_cross_entropy(args, host_stream);
      EXPECT_EQ(widened(dw_alone), widened(dw));
      args.dx = args.x;
      linear_cross_entropy(args, host_stream);
      EXPECT_EQ(widened(x), widened(dx));
      EXPECT_EQ(widened(dw_alone), widened(dw));
    }
}

TYPED_TEST(SixteenBit, RouterGradientIsRoundedOnce) {
  const std::int64_t n = 40, e = 6, k = 2;
  auto logits = random_vector<float>(n * e, 1);
  std::vector<float> probs(at(n * e)), weights(at(n * k)), wide(probs.size());
  std::vector<std::int32_t> experts(at(n * k));
  route({.logits = view(logits, {n, e}),
         .probs = view(probs, {n, e}),
         .experts = view(experts, {n, k}),
         .weights = view(weights, {n, k})},
        host_stream);
  auto dweights = random_vector<float>(n * k, 2);
  std::vector<TypeParam> dlogits(probs.size());
  const auto backward = [&](const TensorView& out) {
    route_backward({.dweights = view(dweights, {n, k}),
                    .probs = view(probs, {n, e}),
                    .experts = view(experts, {n, k}),
                    .weights = view(weights, {n, k}),
                    .dlogits = out},
                   host_stream);
  };
  backward(view(dlogits, {n, e}));
  backward(view(wide, {n, e}));
  expect_rounded(dlogits, wide);
}

TYPED_TEST(SixteenBit, RowsOfExperts) {
  const std::int64_t n = 21, k = 2, e = 3, c = 1039;
  std::vector<std::int32_t> experts(at(n * k)), slots(at(n * k)), rows(at(n * k)), offsets(at(e + 1));
  for (std::size_t i = 0; i < experts.size(); ++i) experts[i] = static_cast<std::int32_t>((i + i / 2) % 3);
  const Dispatch dispatch{.slots = view(slots), .rows = view(rows), .offsets = view(offsets)};
  make_dispatch(view(experts, {n, k}), dispatch, host_stream);
  auto x = random_16bit<TypeParam>(n * c, 1), y = random_16bit<TypeParam>(n * c, 2);
  std::vector<TypeParam> gathered(at(n * k * c));
  auto weights = random_vector<float>(n * k, 3);
  gather_rows(view(x, {n, c}), dispatch, view(gathered, {n * k, c}), host_stream);
  for (std::int64_t row = 0; row < n * k; ++row)
    ASSERT_EQ(std::memcmp(gathered.data() + row * c, x.data() + slots[at(row)] / k * c, at(c) * 2), 0);
  for (const bool accumulate : {false, true}) {
    auto out = y;
    auto wide = widened(y), wide_dealt = widened(gathered);
    combine_rows({.x = view(gathered, {n * k, c}),
                  .weights = view(weights, {n, k}),
                  .dispatch = dispatch,
                  .y = view(out, {n, c}),
                  .accumulate = accumulate},
                 host_stream);
    combine_rows({.x = view(wide_dealt, {n * k, c}),
                  .weights = view(weights, {n, k}),
                  .dispatch = dispatch,
                  .y = view(wide, {n, c}),
                  .accumulate = accumulate},
                 host_stream);
    expect_rounded(out, wide);
  }
  auto b = random_16bit<TypeParam>(n * k * c, 4);
  auto wa = widened(gathered), wb = widened(b);
  std::vector<float> dweights(weights.size()), wide_dweights(weights.size());
  combine_weights_backward({.a = view(gathered, {n * k, c}),
                            .b = view(b, {n * k, c}),
                            .weights = view(weights, {n, k}),
                            .dispatch = dispatch,
                            .dweights = view(dweights, {n, k})},
                           host_stream);
  combine_weights_backward({.a = view(wa, {n * k, c}),
                            .b = view(wb, {n * k, c}),
                            .weights = view(weights, {n, k}),
                            .dispatch = dispatch,
                            .dweights = view(wide_dweights, {n, k})},
                           host_stream);
  expect_rounded(gathered, wa);
  expect_rounded(b, wb);
  EXPECT_LT(relative_error(dweights, wide_dweights), 1e-6);
}

TYPED_TEST(SixteenBit, CachedAttention) {
  for (const Isa set : instruction_sets()) {
    const Setting setting(2, set);
    const std::int64_t capacity = 300, d = 21;
    const AttentionShape shape{.batch = 2, .tokens = 1, .heads = 4, .kv_heads = 2, .head_dim = d};
    auto qkv = random_16bit<TypeParam>(2 * 8 * d, 1), keys = random_16bit<TypeParam>(2 * 2 * capacity * d, 2),
         values = random_16bit<TypeParam>(2 * 2 * capacity * d, 3);
    std::vector<TypeParam> out(at(2 * 4 * d));
    auto wqkv = widened(qkv), wkeys = widened(keys), wvalues = widened(values), wout = widened(out);
    std::vector<std::int32_t> positions{7, 299};
    const auto run = [&](const TensorView& q, const TensorView& k, const TensorView& v, const TensorView& to) {
      Workspace workspace(cached_attention_workspace(shape, q.dtype));
      const AttentionCache cache{.keys = k, .values = v};
      const QkvHeads heads = fused_qkv(shape, q);
      const TensorView at = view(positions, {2, 1});
      cache_append({.shape = shape, .k = heads.k, .v = heads.v, .positions = at, .cache = cache}, host_stream);
      cached_attention({.of = {.shape = shape, .qkv = heads, .scale = 0.3, .positions = at},
                        .cache = cache,
                        .out = to,
                        .workspace = workspace.view()},
                       host_stream);
      EXPECT_TRUE(workspace.intact());
    };
    const Shape cached{2, 2, capacity, d};
    run(view(qkv, {2, 8 * d}), view(keys, cached), view(values, cached), view(out, {2, 4 * d}));
    run(view(wqkv, {2, 8 * d}), view(wkeys, cached), view(wvalues, cached), view(wout, {2, 4 * d}));
    EXPECT_EQ(widened(keys), wkeys);
    // A probability is off by half an epsilon at most, and so is the average of values, before its own rounding.
    EXPECT_LT(relative_error(out, wout), 1.1 * half_epsilon<TypeParam>);
  }
}

TYPED_TEST(SixteenBit, TreeSumsAreThoseOfWidenedParts) {
  for (const std::size_t parts : {1, 2, 3, 4, 5, 6, 7, 8, 11, 16, 37})
    for (const std::size_t count : {1, 512, 1300}) {
      std::vector<std::vector<TypeParam>> narrow_parts;
      std::vector<std::vector<float>> wide;
      std::vector<const void*> from;
      std::vector<const float*> wide_from;
      for (std::size_t i = 0; i < parts; ++i) {
        narrow_parts.push_back(random_16bit<TypeParam>(static_cast<std::int64_t>(count), i + 1));
        wide.push_back(widened(narrow_parts.back()));
      }
      for (std::size_t i = 0; i < parts; ++i)
        from.push_back(narrow_parts[i].data()), wide_from.push_back(wide[i].data());
      std::vector<float> out(count), truth(count);
      sum_tree_16bit({.parts = from, .dtype = dtype_of<TypeParam>::value, .out = out.data(), .count = count},
                     host_stream);
      sum_tree({.parts = wide_from, .out = truth.data(), .count = count}, host_stream);
      EXPECT_EQ(out, truth) << parts << " parts of " << count;
    }
}

}  // namespace
}  // namespace tessera::kernels
