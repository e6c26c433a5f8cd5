// SPDX-License-Identifier: Apache-2.0
// Attention against a naive reference in double: values, gradients analytically and by finite differences, extremes,
// threads.

#include "kernels/attention.hpp"

#include "reference.hpp"

namespace tessera::kernels {
namespace {

struct Case {
  AttentionShape shape;
  double spread = 1;
  [[nodiscard]] std::int64_t rows() const { return shape.batch * shape.tokens; }
  [[nodiscard]] std::int64_t width() const { return (shape.heads + 2 * shape.kv_heads) * shape.head_dim; }
  [[nodiscard]] std::int64_t out_width() const { return shape.heads * shape.head_dim; }
  [[nodiscard]] double scale() const { return 1 / std::sqrt(static_cast<double>(shape.head_dim)); }
};

std::ostream& operator<<(std::ostream& os, const Case& c) {
  const AttentionShape& s = c.shape;
  return os << "B " << s.batch << " T " << s.tokens << " nh " << s.heads << " nk " << s.kv_heads << " d " << s.head_dim;
}

template <class T>
struct Result {
  std::vector<T> out, lse, dqkv;
};

using Vector = std::vector<double>;

/// Forward and backward by the definition, one query row at a time.
Result<double> reference(const Case& c, const Vector& qkv, const Vector& dout) {
  const AttentionShape& shape = c.shape;
  const std::int64_t batch = shape.batch, tokens = shape.tokens, heads = shape.heads, kv_heads = shape.kv_heads,
                     d = shape.head_dim;
  Result<double> r{Vector(static_cast<std::size_t>(c.rows() * c.out_width())),
                   Vector(static_cast<std::size_t>(c.rows() * heads)), Vector(qkv.size())};
  for (std::int64_t b = 0; b < batch; ++b) {
    for (std::int64_t h = 0; h < heads; ++h) {
      const std::int64_t kv = h / (heads / kv_heads);
      const auto row = [&, b_ = b](std::int64_t t) { return (b_ * tokens + t) * c.width(); };
      const std::int64_t q = h * d, k = (heads + kv) * d, v = (heads + kv_heads + kv) * d;
      for (std::int64_t i = 0; i < tokens; ++i) {
        const double *qi = &qkv[static_cast<std::size_t>(row(i) + q)],
                     *doi = &dout[static_cast<std::size_t>((b * tokens + i) * c.out_width() + q)];
        double* oi = &r.out[static_cast<std::size_t>((b * tokens + i) * c.out_width() + q)];
        Vector p(static_cast<std::size_t>(i + 1)), dp(p.size());
        double max = -INFINITY, sum = 0, delta = 0;
        for (std::int64_t j = 0; j <= i; ++j) {
          double& s = p[static_cast<std::size_t>(j)];
          for (std::int64_t e = 0; e < d; ++e) s += qi[e] * qkv[static_cast<std::size_t>(row(j) + k + e)] * c.scale();
          max = std::max(max, s);
        }
        for (double& s : p) sum += s = std::exp(s - max);
        r.lse[static_cast<std::size_t>((b * heads + h) * tokens + i)] = max + std::log(sum);
        for (std::int64_t j = 0; j <= i; ++j) {
          const auto at = static_cast<std::size_t>(j);
          p[at] /= sum;
          for (std::int64_t e = 0; e < d; ++e) {
            const double value = qkv[static_cast<std::size_t>(row(j) + v + e)];
            oi[e] += p[at] * value;
            dp[at] += doi[e] * value;
          }
          delta += p[at] * dp[at];
        }
        for (std::int64_t j = 0; j <= i; ++j) {
          const auto at = static_cast<std::size_t>(j);
          const double ds = p[at] * (dp[at] - delta) * c.scale();
          for (std::int64_t e = 0; e < d; ++e) {
            r.dqkv[static_cast<std::size_t>(row(i) + q + e)] += ds * qkv[static_cast<std::size_t>(row(j) + k + e)];
            r.dqkv[static_cast<std::size_t>(row(j) + k + e)] += ds * qi[e];
            r.dqkv[static_cast<std::size_t>(row(j) + v + e)] += p[at] * doi[e];
          }
        }
      }
    }
  }
  return r;
}

template <class T>
Result<T> run(const Case& c, std::vector<T> qkv, std::vector<T> dout, std::vector<std::int32_t> positions = {}) {
  const AttentionShape& s = c.shape;
  const T nan = std::numeric_limits<T>::quiet_NaN();
  Result<T> r{std::vector<T>(dout.size(), nan), std::vector<T>(static_cast<std::size_t>(c.rows() * s.heads), nan),
              std::vector<T>(qkv.size(), nan)};
  const Shape in{s.batch, s.tokens, c.width()}, out{s.batch, s.tokens, c.out_width()}, lse{s.batch, s.heads, s.tokens};
  Workspace forward(attention_forward_workspace(s, dtype_of<T>::value)),
      backward(attention_backward_workspace(s, dtype_of<T>::value));
  const AttentionArgs of{.shape = s,
                         .qkv = fused_qkv(s, view(qkv, in)),
                         .scale = c.scale(),
                         .positions = positions.empty() ? TensorView{} : view(positions, {s.batch, s.tokens})};
  attention_forward({.of = of, .out = view(r.out, out), .lse = view(r.lse, lse), .workspace = forward.view()},
                    host_stream);
  attention_backward({.of = of,
                      .dout = view(dout, out),
                      .out = view(r.out, out),
                      .lse = view(r.lse, lse),
                      .dqkv = fused_qkv(s, view(r.dqkv, in)),
                      .workspace = backward.view()},
                     host_stream);
  EXPECT_TRUE(forward.intact() && backward.intact());
  return r;
}

template <class T>
void expect_equal(const Result<T>& got, const Result<double>& expected, double tolerance) {
  EXPECT_LT(relative_error(got.out, expected.out), tolerance);
  EXPECT_LT(relative_error(got.lse, expected.lse), tolerance);
  EXPECT_LT(relative_error(got.dqkv, expected.dqkv), tolerance);
}

const std::vector<Case> cases = {
    {{2, 1, 2, 2, 8}},   {{1, 7, 4, 2, 20}},   {{2, 37, 4, 1, 64}},   {{1, 48, 2, 2, 64}},  {{1, 96, 2, 1, 16}},
    {{1, 97, 3, 3, 80}}, {{1, 130, 4, 4, 80}}, {{1, 257, 2, 1, 128}}, {{2, 257, 2, 1, 64}}, {{3, 5, 1, 1, 1}},
};

TEST(Attention, MatchesTheReferenceOnEveryInstructionSet) {
  for (const Case& c : cases) {
    SCOPED_TRACE(testing::Message() << c);
    const auto qkv = random_vector<float>(c.rows() * c.width(), 1, c.spread),
               dout = random_vector<float>(c.rows() * c.out_width(), 2);
    const Vector exact_qkv(qkv.begin(), qkv.end()), exact_dout(dout.begin(), dout.end());
    const auto expected = reference(c, exact_qkv, exact_dout);
    for (const Isa set : instruction_sets()) {
      SCOPED_TRACE(name_of(set));
      const Setting setting(2, set);
      expect_equal(run<float>(c, qkv, dout), expected, 5e-6);
      expect_equal(run<double>(c, exact_qkv, exact_dout), expected, 2e-14);
    }
  }
}

TEST(Attention, GradientIsTheSlopeOfTheOutput) {
  const Case c{{1, 53, 4, 2, 12}, 0.7};
  auto qkv = random_vector<double>(c.rows() * c.width(), 3, c.spread);
  const auto dout = random_vector<double>(c.rows() * c.out_width(), 4);
  const auto analytic = run<double>(c, qkv, dout).dqkv;
  const auto objective = [&] {
    const auto out = run<double>(c, qkv, dout).out;
    double sum = 0;
    for (std::size_t i = 0; i < out.size(); ++i) sum += out[i] * dout[i];
    return sum;
  };
  for (std::size_t i = 0; i < qkv.size(); i += 61) {  // visits q, k and v of all heads
    const double value = qkv[i], h = 1e-5;
    qkv[i] = value + h;
    const double above = objective();
    qkv[i] = value - h;
    const double below = objective();
    qkv[i] = value;
    EXPECT_NEAR((above - below) / (2 * h), analytic[i], 2e-8) << "element " << i;
  }
}

TEST(Attention, ThreadsChangeNoBit) {
  for (const Case& c : {Case{{2, 257, 4, 2, 20}}, Case{{1, 130, 6, 1, 64}}, Case{{5, 7, 3, 3, 16}}}) {
    SCOPED_TRACE(testing::Message() << c);
    const auto qkv = random_vector<float>(c.rows() * c.width(), 5),
               dout = random_vector<float>(c.rows() * c.out_width(), 6);
    Result<float> one;
    for (const int num_threads : {1, 2, 3, 8}) {
      const Setting setting(num_threads);
      const auto r = run<float>(c, qkv, dout);
      if (num_threads == 1) one = r;
      EXPECT_EQ(r.out, one.out);
      EXPECT_EQ(r.lse, one.lse);
      EXPECT_EQ(r.dqkv, one.dqkv);
    }
  }
}

TEST(Attention, ASequenceDoesNotDependOnItsBatch) {
  const Case three{{3, 67, 4, 2, 24}}, one{{1, 67, 4, 2, 24}};
  const auto qkv = random_vector<float>(three.rows() * three.width(), 7),
             dout = random_vector<float>(three.rows() * three.out_width(), 8);
  const auto part = [](const std::vector<float>& v, std::ptrdiff_t n) {
    return std::vector<float>(v.end() - n, v.end());
  };
  const auto all = run<float>(three, qkv, dout);
  const auto last = run<float>(one, part(qkv, one.rows() * one.width()), part(dout, one.rows() * one.out_width()));
  EXPECT_EQ(last.out, part(all.out, one.rows() * one.out_width()));
  EXPECT_EQ(last.dqkv, part(all.dqkv, one.rows() * one.width()));
}

TEST(Attention, ExtremeScoresAreFinite) {
  // Scores of ±1e4 and more: all the weight is on one key, or on keys that tie.
  for (const double spread : {30.0, 300.0}) {
    Case c{{1, 130, 2, 1, 64}, spread};
    const auto qkv = random_vector<float>(c.rows() * c.width(), 9, spread),
               dout = random_vector<float>(c.rows() * c.out_width(), 10);
    const auto expected = reference(c, Vector(qkv.begin(), qkv.end()), Vector(dout.begin(), dout.end()));
    const auto got = run<float>(c, qkv, dout);
    for (const auto* v : {&got.out, &got.lse, &got.dqkv}) {
      for (const float x : *v) ASSERT_TRUE(std::isfinite(x));
    }
    EXPECT_LT(relative_error(got.lse, expected.lse), 1e-6);
  }
}

TEST(Attention, ANaNKeyReachesEveryLaterRowAndNoEarlierOne) {
  const Case c{{1, 150, 1, 1, 16}};
  auto qkv = random_vector<float>(c.rows() * c.width(), 11);
  const auto dout = random_vector<float>(c.rows() * c.out_width(), 12);
  const std::int64_t bad = 100;
  qkv[static_cast<std::size_t>(bad * c.width() + 16)] = std::numeric_limits<float>::quiet_NaN();  // a key
  const auto got = run<float>(c, qkv, dout);
  for (std::int64_t t = 0; t < 150; ++t) {
    const float lse = got.lse[static_cast<std::size_t>(t)], out = got.out[static_cast<std::size_t>(t * 16)];
    if (t < bad) {
      EXPECT_TRUE(std::isfinite(lse) && std::isfinite(out)) << t;
    } else {
      EXPECT_TRUE(std::isnan(lse) && std::isnan(out)) << t;
    }
  }
}

/// Two sequences of 211 tokens in documents of these lengths.
const std::vector<std::vector<std::int64_t>> packed = {{1, 7, 48, 97, 3, 1, 54}, {130, 81}};

std::vector<std::int32_t> positions_of(const std::vector<std::vector<std::int64_t>>& rows) {
  std::vector<std::int32_t> positions;
  for (const auto& row : rows) {
    for (const std::int64_t tokens : row) {
      for (std::int64_t t = 0; t < tokens; ++t) positions.push_back(static_cast<std::int32_t>(t));
    }
  }
  return positions;
}

TEST(Attention, ADocumentHasTheBitsOfASequenceOfItsOwn) {
  for (const Case& c : {Case{{2, 211, 4, 2, 20}}, Case{{2, 211, 3, 3, 64}}, Case{{2, 211, 4, 1, 9}}}) {
    SCOPED_TRACE(testing::Message() << c);
    const auto qkv = random_vector<float>(c.rows() * c.width(), 15),
               dout = random_vector<float>(c.rows() * c.out_width(), 16);
    for (const int num_threads : {1, 3}) {
      const Setting setting(num_threads);
      const auto all = run<float>(c, qkv, dout, positions_of(packed));
      std::int64_t row = 0;
      for (const auto& lengths : packed) {
        for (const std::int64_t tokens : lengths) {
          const auto part = [&](const std::vector<float>& v, std::int64_t width) {
            return std::vector<float>(v.begin() + row * width, v.begin() + (row + tokens) * width);
          };
          const auto one = run<float>({{1, tokens, c.shape.heads, c.shape.kv_heads, c.shape.head_dim}},
                                      part(qkv, c.width()), part(dout, c.out_width()));
          EXPECT_EQ(part(all.out, c.out_width()), one.out) << "row " << row;
          EXPECT_EQ(part(all.dqkv, c.width()), one.dqkv) << "row " << row;
          row += tokens;
        }
      }
      const auto one_document = run<float>(c, qkv, dout, positions_of({{211}, {211}})),
                 plain = run<float>(c, qkv, dout);
      EXPECT_EQ(one_document.out, plain.out);
      EXPECT_EQ(one_document.lse, plain.lse);
      EXPECT_EQ(one_document.dqkv, plain.dqkv);
    }
  }
}

TEST(Attention, ADocumentOfNaNsReachesNoOther) {
  // Masking by a zero would propagate a NaN: other documents must not be read at all.
  const Case c{{2, 211, 4, 2, 20}};
  auto qkv = random_vector<float>(c.rows() * c.width(), 17), dout = random_vector<float>(c.rows() * c.out_width(), 18);
  const std::int64_t first = 8, last = 56;  // the third of the first sequence
  const auto is_bad = [&](std::int64_t t) { return t >= first && t < last; };
  for (std::int64_t i = first * c.width(); i < last * c.width(); ++i)
    qkv[static_cast<std::size_t>(i)] = std::numeric_limits<float>::quiet_NaN();
  const auto got = run<float>(c, qkv, dout, positions_of(packed));
  for (std::int64_t t = 0; t < c.rows(); ++t) {
    EXPECT_EQ(is_bad(t), std::isnan(got.out[static_cast<std::size_t>(t * c.out_width())])) << t;
    EXPECT_EQ(is_bad(t), std::isnan(got.dqkv[static_cast<std::size_t>(t * c.width() + 90)])) << t;   // a key
    EXPECT_EQ(is_bad(t), std::isnan(got.dqkv[static_cast<std::size_t>(t * c.width() + 120)])) << t;  // a value
  }
}

TEST(Attention, LseMayBeAbsentAndNoTokensAreNoWork) {
  const Case c{{1, 9, 2, 1, 8}};
  auto qkv = random_vector<float>(c.rows() * c.width(), 13);
  const auto with = run<float>(c, qkv, random_vector<float>(c.rows() * c.out_width(), 14));
  std::vector<float> out(with.out.size());
  Workspace workspace(attention_forward_workspace(c.shape, DType::f32));
  attention_forward({.of = {.shape = c.shape, .qkv = fused_qkv(c.shape, view(qkv)), .scale = c.scale()},
                     .out = view(out),
                     .lse = {},
                     .workspace = workspace.view()},
                    host_stream);
  EXPECT_EQ(out, with.out);
  attention_forward({.of = {.shape = {0, 9, 2, 1, 8}, .qkv = {}}, .out = {}, .lse = {}, .workspace = workspace.view()},
                    host_stream);
}

}  // namespace
}  // namespace tessera::kernels
