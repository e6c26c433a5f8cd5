// SPDX-License-Identifier: Apache-2.0
// Attention on a device against the host: odd lengths, groups of heads, head sizes of every kernel and between,
// documents, unaligned memory, two runs.
#include "kernels/attention.hpp"

#include "host_device_tensor.hpp"
#include "kernels/cuda/fused_attention_plan.hpp"
#include "kernels/cuda/ops.hpp"

namespace tessera::kernels {
namespace {

template <class T>
class CudaAttention : public testing::Test {};
TYPED_TEST_SUITE(CudaAttention, ElementTypes);

/// Positions of documents of different lengths, the first of which began before its sequence.
std::vector<std::int32_t> documents(const AttentionShape& s) {
  std::vector<std::int32_t> positions;
  for (std::int64_t b = 0; b < s.batch; ++b) {
    std::int32_t at = b % 2 == 0 ? 3 : 0;
    for (std::int64_t t = 0; t < s.tokens; ++t, ++at) {
      if (t > 0 && uniform(9, static_cast<std::uint64_t>(b * s.tokens + t)) < 0.03) at = 0;
      positions.push_back(at);
    }
  }
  return positions;
}

template <class T>
struct Problem {
  Problem(const AttentionShape& s, std::size_t shift)
      : shape(s),
        rows(s.batch * s.tokens),
        width((s.heads + 2 * s.kv_heads) * s.head_dim),
        qkv(normals_of<T>(rows * width, 1), Shape{rows, width}, shift),
        out(Shape{rows, s.heads * s.head_dim}, T(7.0F), shift),
        dout(normals_of<T>(rows * s.heads * s.head_dim, 2), Shape{rows, s.heads * s.head_dim}, shift),
        dqkv(Shape{rows, width}, T(7.0F), shift),
        lse(Shape{s.batch, s.heads, s.tokens}, 0.0F),
        positions(documents(s), Shape{s.batch, s.tokens}),
        starts(Shape{s.batch, s.tokens}, 0),
        lengths(Shape{s.batch, s.tokens}, 0),
        host_forward(attention_forward_workspace(s, dtype_of<T>::value)),
        host_backward(attention_backward_workspace(s, dtype_of<T>::value)),
        workspace(std::max(attention_forward_workspace(s, dtype_of<T>::value, test_device()),
                           attention_backward_workspace(s, dtype_of<T>::value, test_device()))) {
    if (shape.longest == 0) return;
    const std::vector<std::int32_t> targets(positions.host().size(), 1);
    groups = list_documents({s.batch, s.tokens, positions.host().data(), targets.data()}, starts.host().data(),
                            lengths.host().data());
    starts.upload();
    lengths.upload();
  }
  [[nodiscard]] AttentionDocuments list() {
    if (shape.longest == 0) return {};
    return {groups.list(), starts.on_device(), lengths.on_device()};
  }
  void run(bool with_documents, StreamView stream) {
    AttentionArgs of{.shape = shape,
                     .qkv = fused_qkv(shape, qkv.on_host()),
                     .scale = 1 / std::sqrt(static_cast<double>(shape.head_dim)),
                     .positions = with_documents ? positions.on_host() : TensorView{}};
    attention_forward({.of = of, .out = out.on_host(), .lse = lse.on_host(), .workspace = host_forward.view()},
                      host_stream);
    attention_backward({.of = of,
                        .dout = dout.on_host(),
                        .out = out.on_host(),
                        .lse = lse.on_host(),
                        .dqkv = fused_qkv(shape, dqkv.on_host()),
                        .workspace = host_backward.view()},
                       host_stream);
    of.qkv = fused_qkv(shape, qkv.on_device());
    of.positions = with_documents ? positions.on_device() : TensorView{};
    of.documents = list();
    attention_forward({.of = of, .out = out.on_device(), .lse = lse.on_device(), .workspace = workspace.view()},
                      stream);
    attention_backward({.of = of,
                        .dout = dout.on_device(),
                        .out = out.on_device(),
                        .lse = lse.on_device(),
                        .dqkv = fused_qkv(shape, dqkv.on_device()),
                        .workspace = workspace.view()},
                       stream);
  }
  AttentionShape shape;
  std::int64_t rows, width;
  HostDeviceTensor<T> qkv, out, dout, dqkv;
  HostDeviceTensor<float> lse;
  HostDeviceTensor<std::int32_t> positions, starts, lengths;
  DocumentGroups groups;
  Workspace host_forward, host_backward;
  DeviceMemory workspace;
};

template <class T>
void expect_as_host(const AttentionShape& s, bool with_documents, std::size_t shift = 0) {
  SCOPED_TRACE(testing::Message() << s.batch << " x " << s.tokens << ", heads " << s.heads << "/" << s.kv_heads
                                  << " of " << s.head_dim << (with_documents ? ", documents" : ""));
  Problem<T> p(s, shift);
  DeviceStream stream;
  p.run(with_documents, stream.view());
  stream.synchronize();
  EXPECT_LE(device_error(p.out), 2 * tolerance<T>);
  if (s.longest == 0) {  // cuDNN's of documents has another layout
    EXPECT_LE(device_error(p.lse), 1e-5);
  }
  EXPECT_LE(device_error(p.dqkv), (std::is_same_v<T, float> ? 2e-5 : 3 * tolerance<T>));
  const auto out = p.out.download(), dqkv = p.dqkv.download();
  p.run(with_documents, stream.view());
  stream.synchronize();
  EXPECT_EQ(bytes_of(p.out.download()), bytes_of(out));
  EXPECT_EQ(bytes_of(p.dqkv.download()), bytes_of(dqkv));
}

TYPED_TEST(CudaAttention, LengthsAroundTheTiles) {
  TESSERA_NEEDS_DEVICE();
  for (const std::int64_t tokens : {1, 15, 16, 63, 64, 65, 129, 300})
    expect_as_host<TypeParam>({1, tokens, 2, 1, 64}, false);
}

TYPED_TEST(CudaAttention, HeadSizesOfEveryKernelAndBetween) {
  TESSERA_NEEDS_DEVICE();
  for (const std::int64_t head_dim : {8, 13, 32, 64, 72, 80, 96, 128, 136, 160, 192, 256})
    expect_as_host<TypeParam>({1, 77, 2, 1, head_dim}, false);
}

TYPED_TEST(CudaAttention, GroupsOfHeads) {
  TESSERA_NEEDS_DEVICE();
  const std::int64_t part = small_problems() ? 2 : 1;
  expect_as_host<TypeParam>({2, 100 / part, 12, 2, 64}, false);
  expect_as_host<TypeParam>({1, 130 / part, 7, 1, 128}, false);
  expect_as_host<TypeParam>({3, 66 / part, 8, 4, 128}, false);
}

TYPED_TEST(CudaAttention, Documents) {
  TESSERA_NEEDS_DEVICE();
  const std::int64_t part = small_problems() ? 2 : 1;
  expect_as_host<TypeParam>({3, 300 / part, 4, 2, 64}, true);
  expect_as_host<TypeParam>({1, 517 / part, 2, 1, 128}, true);
  expect_as_host<TypeParam>({2, 200 / part, 2, 2, 256}, true);
}

TYPED_TEST(CudaAttention, MemoryOffSixteenBytes) {
  TESSERA_NEEDS_DEVICE();
  expect_as_host<TypeParam>({2, 70, 4, 2, 64}, false, 1);
}

/// Selects cuDNN for a scope.
struct WithCudnn {
  WithCudnn() { set_device_attention(DeviceAttention::cudnn); }
  ~WithCudnn() { set_device_attention(DeviceAttention::own); }
};

/// Why cuDNN's kernels cannot compute T here; "": they can.
template <class T>
std::string cudnn_missing() {
  if (std::is_same_v<T, float>) return "cuDNN's kernels are for bf16 and fp16";
  try {
    require_cudnn_attention(test_device());
  } catch (const Error& error) { return error.what(); }
  return "";
}

TYPED_TEST(CudaAttention, OfCudnn) {
  TESSERA_NEEDS_DEVICE();
  if (const std::string why = cudnn_missing<TypeParam>(); !why.empty()) GTEST_SKIP() << why;
  const WithCudnn with;
  const std::int64_t before = cudnn_attention_calls();
  for (const std::int64_t tokens : {1, 15, 64, 65, 129, 300}) expect_as_host<TypeParam>({1, tokens, 2, 1, 64}, false);
  expect_as_host<TypeParam>({2, 100, 12, 2, 64}, false);
  expect_as_host<TypeParam>({1, 130, 7, 1, 128}, false);
  expect_as_host<TypeParam>({13, 1024, 12, 2, 128}, false);  // two chunks, of 8 and 5
  expect_as_host<TypeParam>({.batch = 2, .tokens = 300, .heads = 4, .kv_heads = 2, .head_dim = 64, .window = 50},
                            false);
  EXPECT_EQ(cudnn_attention_calls() - before, 10 * 2 * 2);  // forward and backward, twice
  expect_as_host<TypeParam>({2, 300, 4, 2, 64}, true);      // our own kernels, with the same workspace
  EXPECT_EQ(cudnn_attention_calls() - before, 10 * 2 * 2);
}

TYPED_TEST(CudaAttention, DocumentsOfCudnn) {
  TESSERA_NEEDS_DEVICE();
  if (const std::string why = cudnn_missing<TypeParam>(); !why.empty()) GTEST_SKIP() << why;
  const WithCudnn with;
  const std::int64_t before = cudnn_attention_calls();
  expect_as_host<TypeParam>({3, 300, 4, 2, 64, 300}, true);
  expect_as_host<TypeParam>({2, 517, 3, 1, 128, 517}, true);
  expect_as_host<TypeParam>({1, 65, 3, 3, 64, 65}, true);
  expect_as_host<TypeParam>({9, 1000, 12, 2, 128, 1000}, true);  // more short documents than a part takes
  AttentionShape with_window{2, 517, 4, 2, 128, 517};
  with_window.window = 100;
  expect_as_host<TypeParam>(with_window, true);
  EXPECT_EQ(cudnn_attention_calls() - before, 5 * 2 * 2);
}

TYPED_TEST(CudaAttention, PartsOfHeadsOfCudnn) {
  TESSERA_NEEDS_DEVICE();
  if (const std::string why = cudnn_missing<TypeParam>(); !why.empty()) GTEST_SKIP() << why;
  const WithCudnn with;
  const AttentionShape s{1, 4224, 32, 8, 64};  // two parts of 4 key-value heads
  ASSERT_EQ(cuda::plan_fused_attention(s, dtype_of<TypeParam>::value)->kv_heads, 4);
  expect_as_host<TypeParam>(s, false);
}

TYPED_TEST(CudaAttention, LargeScoresAreFinite) {
  TESSERA_NEEDS_DEVICE();
  const AttentionShape s{1, 90, 2, 2, 64};
  Problem<TypeParam> p(s, 0);
  p.qkv.host() = normals_of<TypeParam>(p.rows * p.width, 3, 30);
  p.qkv.upload();
  DeviceStream stream;
  p.run(false, stream.view());
  stream.synchronize();
  for (const auto x : p.out.download()) ASSERT_TRUE(std::isfinite(static_cast<float>(x)));
  EXPECT_LE(device_error(p.out), (std::is_same_v<TypeParam, float> ? 1e-4 : 4 * tolerance<TypeParam>));
}

}  // namespace
}  // namespace tessera::kernels
