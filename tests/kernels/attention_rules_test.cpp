// SPDX-License-Identifier: Apache-2.0
// Attention's rules (parts of rows, documents, windows, soft caps, sinks) against their definition in double, by finite
// differences, in 16 bits, and over a cache.
#include "attention_rules.hpp"

#include <cstring>

#include "kernels/attention_cache.hpp"
#include "reference_16bit.hpp"

namespace tessera::kernels {
namespace {

constexpr double scale = 0.4;

template <class T>
using Wide = std::conditional_t<sizeof(T) == 8, double, float>;

/// q, k, v, sinks, out's gradient, and what attention makes of them; each in memory of its own.
template <class T>
struct Problem {
  std::vector<T> q, k, v, sinks, dout;
  std::vector<T> out, dq, dk, dv, dsinks;
  std::vector<Wide<T>> lse;
};

template <class T>
Problem<T> inputs(const RuleCase& c) {
  Problem<T> r;
  const auto numbers = [](std::int64_t n, std::uint64_t seed, double spread) {
    const std::vector<float> exact = random_vector<float>(n, seed, spread);
    std::vector<T> rounded;
    for (const float x : exact) rounded.push_back(static_cast<T>(static_cast<float>(static_cast<bf16>(x))));
    return rounded;
  };
  r.q = numbers(c.queries() * c.q_width(), 1, 1);
  r.k = numbers(c.keys() * c.kv_width(), 2, 1);
  r.v = numbers(c.keys() * c.kv_width(), 3, 1);
  r.sinks = numbers(c.shape.heads, 4, 2);
  r.dout = numbers(c.queries() * c.q_width(), 5, 1);
  return r;
}

/// By the definition, one query at a time.
void by_definition(const RuleCase& c, Problem<double>& r) {
  const AttentionShape& s = c.shape;
  const std::int64_t d = s.head_dim, tk = s.num_keys();
  const std::vector<std::int32_t> positions = rule_positions(c);
  r.out.assign(r.q.size(), 0), r.dq = r.out;
  r.dk.assign(r.k.size(), 0), r.dv = r.dk;
  r.dsinks.assign(r.sinks.size(), 0);
  r.lse.assign(static_cast<std::size_t>(c.queries() * s.heads), 0);
  for (std::int64_t b = 0; b < s.batch; ++b)
    for (std::int64_t h = 0; h < s.heads; ++h)
      for (std::int64_t t = 0; t < s.tokens; ++t) {
        const std::int64_t i = s.query_offset + t, kv = h / (s.heads / s.kv_heads);
        const auto at_q = static_cast<std::size_t>((b * s.tokens + t) * c.q_width() + h * d);
        const auto at_k = [&](std::int64_t j) {
          return static_cast<std::size_t>((b * tk + j) * c.kv_width() + kv * d);
        };
        std::int64_t first = 0;
        if (c.documents) first = std::max<std::int64_t>(0, i - positions[static_cast<std::size_t>(b * tk + i)]);
        if (s.window > 0) first = std::max(first, i - s.window + 1);
        std::vector<double> p, slope, dp;
        const double sink = s.sinks ? r.sinks[static_cast<std::size_t>(h)] : -INFINITY;
        double max = sink, sum = 0, delta = 0;
        for (std::int64_t j = first; j <= i; ++j) {
          double score = 0;
          for (std::int64_t e = 0; e < d; ++e)
            score += scale * r.q[at_q + static_cast<std::size_t>(e)] * r.k[at_k(j) + static_cast<std::size_t>(e)];
          const double t_ = s.soft_cap > 0 ? std::tanh(score / s.soft_cap) : 0;
          p.push_back(s.soft_cap > 0 ? s.soft_cap * t_ : score);
          slope.push_back(1 - t_ * t_);
          max = std::max(max, p.back());
        }
        for (double& x : p) sum += x = std::exp(x - max);
        if (s.sinks) sum += std::exp(sink - max);
        const double lse = max + std::log(sum);
        r.lse[static_cast<std::size_t>((b * s.heads + h) * s.tokens + t)] = lse;
        for (std::size_t n = 0; n < p.size(); ++n) {
          p[n] /= sum;
          dp.push_back(0);
          for (std::size_t e = 0; e < static_cast<std::size_t>(d); ++e) {
            const double value = r.v[at_k(first + static_cast<std::int64_t>(n)) + e];
            r.out[at_q + e] += p[n] * value;
            dp[n] += r.dout[at_q + e] * value;
          }
          delta += p[n] * dp[n];
        }
        for (std::size_t n = 0; n < p.size(); ++n) {
          const std::size_t key = at_k(first + static_cast<std::int64_t>(n));
          const double ds = p[n] * (dp[n] - delta) * slope[n] * scale;
          for (std::size_t e = 0; e < static_cast<std::size_t>(d); ++e) {
            r.dq[at_q + e] += ds * r.k[key + e];
            r.dk[key + e] += ds * r.q[at_q + e];
            r.dv[key + e] += p[n] * r.dout[at_q + e];
          }
        }
        if (s.sinks) r.dsinks[static_cast<std::size_t>(h)] -= std::exp(sink - lse) * delta;
      }
}

/// Rows of `width` numbers, `gap` more apart, which nobody may touch.
template <class T>
struct Rows {
  Rows(const std::vector<T>& of, std::int64_t width_, std::int64_t gap_) : width(width_), gap(gap_) {
    for (std::size_t i = 0; i < of.size(); i += static_cast<std::size_t>(width)) {
      all.insert(all.end(), of.begin() + static_cast<std::ptrdiff_t>(i),
                 of.begin() + static_cast<std::ptrdiff_t>(i) + width);
      all.insert(all.end(), static_cast<std::size_t>(gap), T(77.0F));
    }
  }
  HeadRows heads() { return {view(all), width + gap}; }
  std::vector<T> rows() const {
    std::vector<T> of;
    for (std::size_t i = 0; i < all.size(); ++i) {
      const bool in_gap = static_cast<std::int64_t>(i) % (width + gap) >= width;
      if (!in_gap) of.push_back(all[i]);
      else if (static_cast<float>(all[i]) != 77.0F) ADD_FAILURE() << "number " << i << " between rows";
    }
    return of;
  }
  std::vector<T> all;
  std::int64_t width, gap;
};

template <class T>
void run(const RuleCase& c, Problem<T>& r) {
  const AttentionShape& s = c.shape;
  constexpr DType dtype = dtype_of<T>::value;
  const T nan(std::numeric_limits<float>::quiet_NaN());
  std::vector<std::int32_t> positions = rule_positions(c);
  Rows<T> q(r.q, c.q_width(), 3), k(r.k, c.kv_width(), 0), v(r.v, c.kv_width(), 5);
  Rows<T> dq(std::vector<T>(r.q.size(), nan), c.q_width(), 1), dk(std::vector<T>(r.k.size(), nan), c.kv_width(), 2),
      dv(std::vector<T>(r.v.size(), nan), c.kv_width(), 0);
  r.out.assign(r.q.size(), nan);
  r.lse.assign(static_cast<std::size_t>(c.queries() * s.heads), std::numeric_limits<Wide<T>>::quiet_NaN());
  r.dsinks.assign(r.sinks.size(), T(0.25F));  // added to
  Workspace forward(attention_forward_workspace(s, dtype)), backward(attention_backward_workspace(s, dtype));
  const AttentionArgs of{.shape = s,
                         .qkv = {q.heads(), k.heads(), v.heads()},
                         .scale = scale,
                         .sinks = s.sinks ? view(r.sinks) : TensorView{},
                         .positions = c.documents ? view(positions) : TensorView{}};
  attention_forward({.of = of, .out = view(r.out), .lse = view(r.lse), .workspace = forward.view()}, host_stream);
  attention_backward({.of = of,
                      .dout = view(r.dout),
                      .out = view(r.out),
                      .lse = view(r.lse),
                      .dqkv = {dq.heads(), dk.heads(), dv.heads()},
                      .dsinks = s.sinks ? view(r.dsinks) : TensorView{},
                      .accumulate_dsinks = true,
                      .workspace = backward.view()},
                     host_stream);
  EXPECT_TRUE(forward.intact() && backward.intact());
  r.dq = dq.rows(), r.dk = dk.rows(), r.dv = dv.rows();
  for (T& x : r.dsinks) x = static_cast<T>(static_cast<Wide<T>>(x) - Wide<T>(0.25));
  (void)q.rows(), (void)k.rows(), (void)v.rows();
}

template <class T, class Truth>
void expect_equal(const RuleCase& c, const Problem<T>& got, const Problem<Truth>& truth, double forward,
                  double backward) {
  EXPECT_LT(relative_error(got.out, truth.out), forward);
  EXPECT_LT(relative_error(got.dq, truth.dq), backward);
  EXPECT_LT(relative_error(got.dk, truth.dk), backward);
  EXPECT_LT(relative_error(got.dv, truth.dv), backward);
  if (c.shape.sinks) { EXPECT_LT(relative_error(got.dsinks, truth.dsinks), backward); }
}

TEST(AttentionRules, AreTheirDefinitionOnEveryInstructionSet) {
  for (const RuleCase& c : rule_cases()) {
    SCOPED_TRACE(testing::Message() << c);
    auto truth = inputs<double>(c);
    by_definition(c, truth);
    for (const Isa set : instruction_sets()) {
      SCOPED_TRACE(name_of(set));
      const Setting setting(2, set);
      auto wide = inputs<double>(c);
      auto narrow = inputs<float>(c);
      run(c, wide);
      run(c, narrow);
      expect_equal(c, wide, truth, 2e-14, 5e-14);
      expect_equal(c, narrow, truth, 5e-6, 1e-5);
      EXPECT_LT(relative_error(wide.lse, truth.lse), 2e-14);
      EXPECT_LT(relative_error(narrow.lse, truth.lse), 2e-6);
      const Setting other(3, set);
      auto threaded = inputs<float>(c);
      run(c, threaded);
      EXPECT_TRUE(threaded.out == narrow.out && threaded.lse == narrow.lse && threaded.dq == narrow.dq &&
                  threaded.dk == narrow.dk && threaded.dv == narrow.dv && threaded.dsinks == narrow.dsinks);
    }
  }
}

TEST(AttentionRules, GradientsAreSlopesOfTheOutput) {
  RuleCase c{{.batch = 1, .tokens = 37, .heads = 4, .kv_heads = 2, .head_dim = 12, .keys = 53, .query_offset = 13},
             true};
  c.shape.window = 9, c.shape.soft_cap = 1.2, c.shape.sinks = true;
  auto r = inputs<double>(c);
  run(c, r);
  const Problem<double> analytic = r;
  const auto objective = [&] {
    run(c, r);
    double sum = 0;
    for (std::size_t i = 0; i < r.out.size(); ++i) sum += r.out[i] * r.dout[i];
    return sum;
  };
  const auto check = [&](std::vector<double>& x, const std::vector<double>& gradient, std::size_t every) {
    for (std::size_t i = 0; i < x.size(); i += every) {
      const double value = x[i], h = 1e-5;
      x[i] = value + h;
      const double above = objective();
      x[i] = value - h;
      const double below = objective();
      x[i] = value;
      EXPECT_NEAR((above - below) / (2 * h), gradient[i], 2e-8) << "element " << i;
    }
  };
  check(r.q, analytic.dq, 97);
  check(r.k, analytic.dk, 61);
  check(r.v, analytic.dv, 61);
  check(r.sinks, analytic.dsinks, 1);
}

TEST(AttentionRules, APartOfTheQueriesHasTheBitsOfTheWholeRow) {
  for (RuleCase c : rule_cases()) {
    if (c.shape.keys == 0) continue;
    SCOPED_TRACE(testing::Message() << c);
    auto part = inputs<float>(c);
    RuleCase full = c;
    full.shape.tokens = c.shape.keys, full.shape.keys = full.shape.query_offset = 0;
    auto row = inputs<float>(full);
    row.k = part.k, row.v = part.v;
    const auto rows_of = [&](std::vector<float>& x, const auto& f) {  // of the part, in the row
      for (std::int64_t b = 0; b < c.shape.batch; ++b)
        f(x.begin() + (b * full.shape.tokens + c.shape.query_offset) * c.q_width(), b);
    };
    const std::int64_t count = c.shape.tokens * c.q_width();
    rows_of(row.q, [&](auto at, std::int64_t b) { std::copy_n(part.q.begin() + b * count, count, at); });
    rows_of(row.dout, [&](auto at, std::int64_t b) { std::copy_n(part.dout.begin() + b * count, count, at); });
    run(c, part);
    run(full, row);
    rows_of(row.out,
            [&](auto at, std::int64_t b) { EXPECT_TRUE(std::equal(at, at + count, part.out.begin() + b * count)); });
    rows_of(row.dq,
            [&](auto at, std::int64_t b) { EXPECT_TRUE(std::equal(at, at + count, part.dq.begin() + b * count)); });
  }
}

TYPED_TEST_SUITE(SixteenBit, SixteenBitTypes);

TYPED_TEST(SixteenBit, AttentionsRulesAreNearFp32) {
  for (const Isa set : instruction_sets()) {
    const Setting setting(1, set);
    for (const RuleCase& c : rule_cases()) {
      SCOPED_TRACE(testing::Message() << c);
      auto half = inputs<TypeParam>(c);
      Problem<float> wide;
      wide.q = widened(half.q), wide.k = widened(half.k), wide.v = widened(half.v);
      wide.sinks = widened(half.sinks), wide.dout = widened(half.dout);
      run(c, half);
      run(c, wide);
      EXPECT_LT(relative_error(half.lse, wide.lse), 1e-6);
      expect_equal(c, half, wide, 1.1 * half_epsilon<TypeParam>, 2 * half_epsilon<TypeParam>);
    }
  }
}

/// The last `fresh` tokens over a cache.
template <class T>
std::vector<T> over_a_cache(const RuleCase& c, const Problem<T>& r, std::int64_t fresh, std::int64_t capacity) {
  const AttentionShape& s = c.shape;
  const std::int64_t before = s.tokens - fresh, kept = std::min(before, capacity);
  const Shape shape{s.batch, s.kv_heads, capacity, s.head_dim};
  std::vector<T> keys(static_cast<std::size_t>(shape.numel()), std::numeric_limits<T>::quiet_NaN()), values = keys;
  const AttentionCache cache{{keys.data(), shape}, {values.data(), shape}};
  const auto part = [&](const std::vector<T>& of, std::int64_t width, std::int64_t first, std::int64_t count) {
    std::vector<T> rows;
    for (std::int64_t b = 0; b < s.batch; ++b)
      rows.insert(rows.end(), of.begin() + (b * s.tokens + first) * width,
                  of.begin() + (b * s.tokens + first + count) * width);
    return rows;
  };
  auto old_k = part(r.k, c.kv_width(), before - kept, kept), old_v = part(r.v, c.kv_width(), before - kept, kept);
  auto sinks = r.sinks;
  AttentionShape of = s;
  of.tokens = kept;
  cache_append({.shape = of,
                .k = {view(old_k), c.kv_width()},
                .v = {view(old_v), c.kv_width()},
                .positions = {},
                .cache = cache,
                .first = before - kept},
               host_stream);
  of.tokens = fresh;
  auto q = part(r.q, c.q_width(), before, fresh), k = part(r.k, c.kv_width(), before, fresh),
       v = part(r.v, c.kv_width(), before, fresh);
  std::vector<T> out(q.size());
  std::vector<Wide<T>> lse(static_cast<std::size_t>(s.batch * s.heads * fresh)), expected_lse;
  for (std::int64_t i = 0; i < s.batch * s.heads; ++i)
    for (std::int64_t t = before; t < s.tokens; ++t)
      expected_lse.push_back(r.lse[static_cast<std::size_t>(i * s.tokens + t)]);
  std::vector<std::int32_t> positions;
  for (std::int64_t i = 0; i < s.batch * fresh; ++i) positions.push_back(static_cast<std::int32_t>(before + i % fresh));
  Workspace workspace(cached_attention_workspace(of, dtype_of<T>::value));
  cached_attention({.of = {.shape = of,
                           .qkv = {{view(q), c.q_width()}, {view(k), c.kv_width()}, {view(v), c.kv_width()}},
                           .scale = scale,
                           .sinks = s.sinks ? view(sinks) : TensorView{},
                           .positions = view(positions)},
                    .cache = cache,
                    .out = view(out),
                    .lse = view(lse),
                    .workspace = workspace.view(),
                    .appends = true},
                   host_stream);
  EXPECT_TRUE(workspace.intact());
  EXPECT_LT(relative_error(lse, expected_lse), sizeof(T) == 8 ? 1e-13 : 2e-6);
  EXPECT_LT(relative_error(out, part(r.out, c.q_width(), before, fresh)), sizeof(T) == 8 ? 1e-13 : 1e-5);
  return out;
}

/// Against all tokens at once; and a ring has the bits of a cache of all tokens.
template <class T>
void expect_over_a_cache(const RuleCase& c, std::int64_t fresh) {
  const AttentionShape& s = c.shape;
  auto r = inputs<T>(c);
  run(c, r);
  const std::vector<T> all = over_a_cache(c, r, fresh, s.tokens + 3);
  if (s.window == 0) return;
  for (const std::int64_t ring : {s.window + fresh - 1, s.window + fresh + 2})
    EXPECT_EQ(over_a_cache(c, r, fresh, ring), all) << ring;
}

TEST(AttentionRules, HoldOverACache) {
  for (const Isa set : instruction_sets()) {
    const Setting setting(2, set);
    std::int64_t fresh = 1;
    for (RuleCase c : rule_cases()) {
      if (c.documents) continue;
      c.shape.tokens = c.shape.num_keys(), c.shape.keys = c.shape.query_offset = 0;
      SCOPED_TRACE(testing::Message() << c);
      expect_over_a_cache<double>(c, fresh);
      expect_over_a_cache<float>(c, fresh);
      fresh = 6 - fresh;
    }
  }
}

TEST(AttentionRules, WhatABackendDoesNotTakeIsNamed) {
  AttentionShape s{1, 64, 2, 2, 64};
  const auto refusal = [&](AttentionBackend backend) { return attention_refusal(backend, s, DType::bf16); };
  EXPECT_EQ(refusal(AttentionBackend::host), "");
  s.soft_cap = 30, s.sinks = true, s.window = 9, s.keys = 70;
  EXPECT_EQ(refusal(AttentionBackend::host), "");
  if (!cuda_built) {
    EXPECT_EQ(refusal(AttentionBackend::own), "this program was built without CUDA");
    EXPECT_EQ(refusal(AttentionBackend::cudnn), "this program was built without cuDNN");
  } else {
    EXPECT_EQ(refusal(AttentionBackend::own), "");
    EXPECT_NE(refusal(AttentionBackend::cudnn), "");
  }
  s.keys = 0, s.query_offset = 1;
  std::vector<float> none(1);
  EXPECT_THROW(attention_forward({.of = {.shape = s, .qkv = {}}, .out = {}, .lse = {}, .workspace = {}}, host_stream),
               std::logic_error);  // a query after the last key
}

}  // namespace
}  // namespace tessera::kernels
