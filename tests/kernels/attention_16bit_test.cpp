// SPDX-License-Identifier: Apache-2.0
// Attention of bf16 and f16 against the fp32 kernel on the same values: P and dS are rounded, lse is not; grouped
// heads, odd shapes beyond a tile, packed documents, guarded workspace, the same bits for any number of threads.
#include "kernels/attention.hpp"

#include <cstring>

#include "reference_16bit.hpp"

namespace tessera::kernels {
namespace {

TYPED_TEST_SUITE(SixteenBit, SixteenBitTypes);

template <class T>
struct Run {
  Run(const AttentionShape& shape, std::vector<T> qkv_, std::vector<T> dout_, std::vector<std::int32_t> positions = {})
      : qkv(std::move(qkv_)),
        dout(std::move(dout_)),
        out(dout.size()),
        dqkv(qkv.size()),
        lse(static_cast<std::size_t>(shape.batch * shape.heads * shape.tokens)) {
    constexpr DType dtype = dtype_of<T>::value;
    const double scale = 1 / std::sqrt(static_cast<double>(shape.head_dim));
    const AttentionArgs of{.shape = shape,
                           .qkv = fused_qkv(shape, view(qkv)),
                           .scale = scale,
                           .positions = positions.empty() ? TensorView{} : view(positions)};
    Workspace forward(attention_forward_workspace(shape, dtype)), backward(attention_backward_workspace(shape, dtype));
    attention_forward({.of = of, .out = view(out), .lse = view(lse), .workspace = forward.view()}, host_stream);
    attention_backward({.of = of,
                        .dout = view(dout),
                        .out = view(out),
                        .lse = view(lse),
                        .dqkv = fused_qkv(shape, view(dqkv)),
                        .workspace = backward.view()},
                       host_stream);
    EXPECT_TRUE(forward.intact() && backward.intact());
  }
  std::vector<T> qkv, dout, out, dqkv;
  std::vector<float> lse;
};

template <class T>
std::pair<std::vector<T>, std::vector<T>> inputs(const AttentionShape& s) {
  const std::int64_t rows = s.batch * s.tokens;
  return {random_16bit<T>(rows * (s.heads + 2 * s.kv_heads) * s.head_dim, 1),
          random_16bit<T>(rows * s.heads * s.head_dim, 2)};
}

template <class T>
void is_near_fp32(const AttentionShape& shape, const std::vector<std::int32_t>& positions) {
  SCOPED_TRACE(strfmt("T %lld, %lld heads on %lld of %lld", static_cast<long long>(shape.tokens),
                      static_cast<long long>(shape.heads), static_cast<long long>(shape.kv_heads),
                      static_cast<long long>(shape.head_dim)));
  const auto [qkv, dout] = inputs<T>(shape);
  const Run<T> half(shape, qkv, dout, positions);
  const Run<float> wide(shape, widened(qkv), widened(dout), positions);
  EXPECT_LT(relative_error(half.lse, wide.lse), 1e-6);
  // Half an epsilon of the largest for P (and dS), half for the output; gradients also read a rounded output.
  EXPECT_LT(relative_error(half.out, wide.out), 1.1 * half_epsilon<T>);
  EXPECT_LT(relative_error(half.dqkv, wide.dqkv), 2 * half_epsilon<T>);
  const Setting three(3, isa());
  const Run<T> threaded(shape, qkv, dout, positions);
  EXPECT_EQ(std::memcmp(threaded.out.data(), half.out.data(), half.out.size() * sizeof(T)), 0);
  EXPECT_EQ(std::memcmp(threaded.dqkv.data(), half.dqkv.data(), half.dqkv.size() * sizeof(T)), 0);
  EXPECT_EQ(threaded.lse, half.lse);
}

TYPED_TEST(SixteenBit, AttentionIsNearThatOfFp32) {
  for (const Isa set : instruction_sets()) {
    const Setting setting(1, set);
    for (const AttentionShape& shape :
         {AttentionShape{2, 1, 1, 1, 1}, {1, 49, 3, 3, 9}, {2, 131, 4, 2, 21}, {1, 200, 6, 2, 64}})
      is_near_fp32<TypeParam>(shape, {});
  }
}

TYPED_TEST(SixteenBit, AttentionOfDocumentsInARow) {
  const AttentionShape shape{.batch = 2, .tokens = 130, .heads = 4, .kv_heads = 2, .head_dim = 10};
  std::vector<std::int32_t> positions;
  for (const std::int32_t tokens : {100, 1, 29, 53, 77})
    for (std::int32_t i = 0; i < tokens; ++i) positions.push_back(i);
  is_near_fp32<TypeParam>(shape, positions);
}

TYPED_TEST(SixteenBit, StatisticsOfAttentionAreFp32) {
  const AttentionShape shape{1, 4, 1, 1, 2};
  auto qkv = random_16bit<TypeParam>(24, 1), out = random_16bit<TypeParam>(8, 2), lse = random_16bit<TypeParam>(4, 3);
  Workspace workspace(attention_forward_workspace(shape, dtype_of<TypeParam>::value));
  EXPECT_THROW(attention_forward({.of = {.shape = shape, .qkv = fused_qkv(shape, view(qkv))},
                                  .out = view(out),
                                  .lse = view(lse),
                                  .workspace = workspace.view()},
                                 host_stream),
               std::logic_error);
}

}  // namespace
}  // namespace tessera::kernels
