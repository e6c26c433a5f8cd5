// SPDX-License-Identifier: Apache-2.0
// Element-wise kernels of bf16 and f16: every result has the bits of the fp32 kernel on the same values, rounded once,
// or is near it where there are exponentials; special values, odd sizes, any number of threads.
#include "kernels/adamw.hpp"
#include "kernels/bias.hpp"
#include "kernels/embedding.hpp"
#include "kernels/gelu.hpp"
#include "kernels/rope.hpp"
#include "kernels/swiglu.hpp"

#include "reference_16bit.hpp"

namespace tessera::kernels {
namespace {

TYPED_TEST_SUITE(SixteenBit, SixteenBitTypes);

/// Calls f with every instruction set and several numbers of threads.
template <class F>
void everywhere(const F& f) {
  for (const Isa set : instruction_sets())
    for (const int num : {1, 3}) {
      const Setting setting(num, set);
      SCOPED_TRACE(name_of(set));
      f();
    }
}

/// Every number that T has.
template <class T>
std::vector<T> all_numbers() {
  std::vector<T> v(1 << 16);
  for (std::size_t i = 0; i < v.size(); ++i) v[i].bits = static_cast<std::uint16_t>(i);
  return v;
}

/// Random numbers with special values in front.
template <class T>
std::vector<T> specials(std::int64_t n, std::uint64_t seed) {
  auto v = random_16bit<T>(n, seed, 2);
  const float values[] = {0.0F, -0.0F, INFINITY, -INFINITY, NAN, 6e-8F, -3e-5F, 6e4F, -6e4F};
  for (std::size_t i = 0; i < v.size() && i < std::size(values); ++i) v[i] = T(values[i]);
  return v;
}

std::vector<float> products(const std::vector<float>& a, const std::vector<float>& b) {
  std::vector<float> v(a.size());
  for (std::size_t i = 0; i < v.size(); ++i) v[i] = a[i] * b[i];
  return v;
}

TYPED_TEST(SixteenBit, Gelu) {
  everywhere([] {
    for (const std::int64_t n : {1, 17, 4096 + 3}) {
      auto x = specials<TypeParam>(n, 1), dy = random_16bit<TypeParam>(n, 2), y = x, dx = x;
      auto wx = widened(x), wdy = widened(dy), wy = wx, wdx = wx;
      gelu_forward({.x = view(x), .y = view(y)}, host_stream);
      gelu_forward({.x = view(wx), .y = view(wy)}, host_stream);
      expect_near_function(y, wy);
      gelu_backward({.x = view(x), .dy = view(dy), .dx = view(dx)}, host_stream);
      gelu_backward({.x = view(wx), .dy = view(wdy), .dx = view(wdx)}, host_stream);
      expect_near_function(dx, wdx, wdy);
    }
  });
}

TYPED_TEST(SixteenBit, GeluOfEveryNumber) {
  everywhere([] {
    auto x = all_numbers<TypeParam>(), y = x, dx = x;
    std::vector<TypeParam> one(x.size(), TypeParam(1.0F));
    auto wx = widened(x), wy = wx, wdx = wx, wone = widened(one);
    gelu_forward({.x = view(x), .y = view(y)}, host_stream);
    gelu_forward({.x = view(wx), .y = view(wy)}, host_stream);
    expect_near_function(y, wy);
    gelu_backward({.x = view(x), .dy = view(one), .dx = view(dx)}, host_stream);
    gelu_backward({.x = view(wx), .dy = view(wone), .dx = view(wdx)}, host_stream);
    expect_near_function(dx, wdx, wone);
  });
}

TYPED_TEST(SixteenBit, SwigluOfEveryNumber) {
  everywhere([] {
    auto gate = all_numbers<TypeParam>(), y = gate, dgate = gate, dup = gate;
    std::vector<TypeParam> one(gate.size(), TypeParam(1.0F));
    auto wgate = widened(gate), wy = wgate, wdgate = wgate, wdup = wgate, wone = widened(one);
    swiglu_forward({.gate = view(gate), .up = view(one), .y = view(y)}, host_stream);
    swiglu_forward({.gate = view(wgate), .up = view(wone), .y = view(wy)}, host_stream);
    expect_near_function(y, wy);
    swiglu_backward({.gate = view(gate), .up = view(one), .dy = view(one), .dgate = view(dgate), .dup = view(dup)},
                    host_stream);
    swiglu_backward({.gate = view(wgate), .up = view(wone), .dy = view(wone), .dgate = view(wdgate), .dup = view(wdup)},
                    host_stream);
    expect_near_function(dgate, wdgate, wone);
    expect_near_function(dup, wdup);
  });
}

TYPED_TEST(SixteenBit, Swiglu) {
  everywhere([] {
    for (const std::int64_t n : {1, 31, 4096 + 5}) {
      auto gate = specials<TypeParam>(n, 1), up = random_16bit<TypeParam>(n, 2), dy = random_16bit<TypeParam>(n, 3),
           y = up, dgate = up, dup = up;
      auto wgate = widened(gate), wup = widened(up), wdy = widened(dy), wy = wup, wdgate = wup, wdup = wup;
      swiglu_forward({.gate = view(gate), .up = view(up), .y = view(y)}, host_stream);
      swiglu_forward({.gate = view(wgate), .up = view(wup), .y = view(wy)}, host_stream);
      expect_near_function(y, wy);
      swiglu_backward({.gate = view(gate), .up = view(up), .dy = view(dy), .dgate = view(dgate), .dup = view(dup)},
                      host_stream);
      swiglu_backward({.gate = view(wgate), .up = view(wup), .dy = view(wdy), .dgate = view(wdgate), .dup = view(wdup)},
                      host_stream);
      expect_near_function(dgate, wdgate, products(wdy, wup));
      expect_near_function(dup, wdup);
    }
  });
}

TYPED_TEST(SixteenBit, AddAndColumnSums) {
  everywhere([] {
    const std::int64_t rows = 43, columns = 1101;  // more than a chunk of sums
    auto x = random_16bit<TypeParam>(rows * columns, 1), y = random_16bit<TypeParam>(rows * columns, 2);
    auto wx = widened(x), wy = widened(y);
    add({.x = view(x), .y = view(y)}, host_stream);
    add({.x = view(wx), .y = view(wy)}, host_stream);
    expect_rounded(y, wy);
    for (const bool accumulate : {false, true}) {
      auto old = random_16bit<TypeParam>(columns, 3), rounded = old;
      auto mixed = widened(old), wide = mixed;
      bias_backward({.dy = view(x, {rows, columns}), .dbias = view(rounded), .accumulate = accumulate}, host_stream);
      bias_backward({.dy = view(x, {rows, columns}), .dbias = view(mixed), .accumulate = accumulate}, host_stream);
      bias_backward({.dy = view(wx, {rows, columns}), .dbias = view(wide), .accumulate = accumulate}, host_stream);
      EXPECT_EQ(mixed, wide);  // fp32 gradients of 16-bit inputs equal those of fp32
      expect_rounded(rounded, wide);
    }
  });
}

TYPED_TEST(SixteenBit, Rope) {
  everywhere([] {
    const std::int64_t rows = 7, heads = 3, d = 18;
    std::vector<double> inv_freq(9);
    for (std::size_t i = 0; i < inv_freq.size(); ++i) inv_freq[i] = std::pow(1e4, -static_cast<double>(i) / 9);
    std::vector<float> table(5 * 18);
    rope_table({.inv_freq = inv_freq, .table = view(table, {5, d})}, host_stream);
    for (const RotaryPairs pairs : {RotaryPairs::rotate_half, RotaryPairs::interleaved})
      for (const Rotation way : {Rotation::forward, Rotation::backward}) {
        auto x = random_16bit<TypeParam>(rows * heads * d, 1);
        auto wx = widened(x);
        for (const TensorView& all : {view(x, {rows, heads * d}), view(wx, {rows, heads * d})})
          rope({.x = all, .head_dim = d, .table = view(table, {5, d}), .rotation = way, .pairs = pairs}, host_stream);
        expect_rounded(x, wx);
      }
    auto x = random_16bit<TypeParam>(d, 1), narrow = random_16bit<TypeParam>(5 * d, 2);
    EXPECT_THROW(rope({.x = view(x, {1, d}), .head_dim = d, .table = view(narrow, {5, d})}, host_stream),
                 std::logic_error);
  });
}

TYPED_TEST(SixteenBit, Embedding) {
  everywhere([] {
    const std::int64_t batch = 3, tokens = 11, vocab = 7, channels = 1061;
    std::vector<std::int32_t> ids(static_cast<std::size_t>(batch * tokens));
    for (std::size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<std::int32_t>(i * i % 5);  // 5 and 6 never occur
    auto table = random_16bit<TypeParam>(vocab * channels, 1),
         positions = random_16bit<TypeParam>(tokens * channels, 2);
    std::vector<TypeParam> y(ids.size() * channels);
    auto wtable = widened(table), wpositions = widened(positions), wy = widened(y);
    const Shape all{batch, tokens, channels};
    embedding_forward({.ids = view(ids, {batch, tokens}),
                       .tokens_table = view(table, {vocab, channels}),
                       .positions_table = view(positions, {tokens, channels}),
                       .y = view(y, all)},
                      host_stream);
    embedding_forward({.ids = view(ids, {batch, tokens}),
                       .tokens_table = view(wtable, {vocab, channels}),
                       .positions_table = view(wpositions, {tokens, channels}),
                       .y = view(wy, all)},
                      host_stream);
    expect_rounded(y, wy);
    auto dy = random_16bit<TypeParam>(static_cast<std::int64_t>(y.size()), 3);
    auto wdy = widened(dy);
    for (const bool accumulate : {false, true}) {
      auto dtable = table, dpositions = positions;
      auto btable = widened(table), bpositions = widened(positions), wdtable = btable, wdpositions = bpositions;
      const auto backward = [&](const TensorView& d, const TensorView& to_table, const TensorView& to_positions) {
        embedding_backward({.ids = view(ids, {batch, tokens}),
                            .dy = d,
                            .dtokens_table = to_table,
                            .accumulate_tokens = accumulate,
                            .dpositions_table = to_positions,
                            .accumulate_positions = accumulate},
                           host_stream);
      };
      backward(view(dy, all), view(dtable, {vocab, channels}), view(dpositions, {tokens, channels}));
      backward(view(dy, all), view(btable, {vocab, channels}), view(bpositions, {tokens, channels}));
      backward(view(wdy, all), view(wdtable, {vocab, channels}), view(wdpositions, {tokens, channels}));
      EXPECT_EQ(btable, wdtable);
      EXPECT_EQ(bpositions, wdpositions);
      expect_rounded(dtable, wdtable);
      expect_rounded(dpositions, wdpositions);
    }
  });
}

TYPED_TEST(SixteenBit, AdamWWritesTheRoundedCopy) {
  everywhere([] {
    const std::int64_t n = 3 * 4096 + 77;
    auto param = random_vector<float>(n, 1), grad = random_vector<float>(n, 2), m = random_vector<float>(n, 3, 0.1),
         v = m;
    for (float& x : v) x = x * x;
    const AdamWScalars scalars{.learning_rate = 1e-2, .bias_correction1 = 0.1, .sqrt_bias_correction2 = 0.03};
    const UpdateDecision decision{.clip = 0.5};
    const UpdateSegment all{.begin = 0, .end = n, .weight_decay = 0.1};
    const auto update = [&](std::vector<float>& x, const TensorView& rounded) {
      return UpdateArgs{
          .param = view(x), .grad = view(grad), .decision = &decision, .segments = {&all, 1}, .copy = rounded};
    };
    auto param2 = param, m2 = m, v2 = v;
    std::vector<TypeParam> copy(static_cast<std::size_t>(n));
    adamw({.update = update(param, {}), .exp_avg = view(m), .exp_avg_sq = view(v), .scalars = &scalars}, host_stream);
    adamw({.update = update(param2, view(copy)), .exp_avg = view(m2), .exp_avg_sq = view(v2), .scalars = &scalars},
          host_stream);
    EXPECT_EQ(param, param2);  // the copy changes nothing else
    EXPECT_EQ(m, m2);
    EXPECT_EQ(v, v2);
    expect_rounded(copy, param);
    std::vector<TypeParam> few(3);
    EXPECT_THROW(
        adamw({.update = update(param, view(few)), .exp_avg = view(m), .exp_avg_sq = view(v), .scalars = &scalars},
              host_stream),
        std::logic_error);
  });
}

TYPED_TEST(SixteenBit, GradientsAreOfTheTypeOrFp32) {
  auto dy = random_16bit<TypeParam>(6, 1);
  std::vector<double> wide(3);
  using Other = std::conditional_t<std::is_same_v<TypeParam, bf16>, f16, bf16>;
  std::vector<Other> other(3);
  EXPECT_THROW(bias_backward({.dy = view(dy, {2, 3}), .dbias = view(wide)}, host_stream), std::logic_error);
  EXPECT_THROW(bias_backward({.dy = view(dy, {2, 3}), .dbias = view(other)}, host_stream), std::logic_error);
}

}  // namespace
}  // namespace tessera::kernels
