// SPDX-License-Identifier: Apache-2.0
// Attention's rules (parts of rows, documents, windows, soft caps, sinks) on a device against the host, by our own
// kernels and over a cache. q, k and v have memory of their own.
#include "../../attention_rules.hpp"

#include "host_device_tensor.hpp"
#include "kernels/attention_cache.hpp"

namespace tessera::kernels {
namespace {

template <class T>
class CudaAttentionRules : public testing::Test {};
TYPED_TEST_SUITE(CudaAttentionRules, ElementTypes);

constexpr double scale = 0.2;

/// The cases, and the wider tiles of heads.
std::vector<RuleCase> device_cases() {
  std::vector<RuleCase> cases = rule_cases();
  for (const std::int64_t head_dim : {128, 200}) {
    RuleCase c{{.batch = 1, .tokens = 70, .heads = 2, .kv_heads = 1, .head_dim = head_dim, .keys = 150}, true};
    c.shape.query_offset = 75, c.shape.window = 40, c.shape.soft_cap = 3, c.shape.sinks = true;
    cases.push_back(c);
  }
  return cases;
}

/// Rows of `width` numbers, `gap` more apart.
template <class T>
struct Rows {
  Rows(std::int64_t rows, std::int64_t width, std::int64_t gap, std::uint64_t seed)
      : tensor(normals_of<T>(rows * (width + gap), seed), Shape{rows, width + gap}), pitch(width + gap) {}
  HeadRows on(bool device) { return {device ? tensor.on_device() : tensor.on_host(), pitch}; }
  HostDeviceTensor<T> tensor;
  std::int64_t pitch;
};

template <class T>
TensorView on(HostDeviceTensor<T>& tensor, bool device) {
  return device ? tensor.on_device() : tensor.on_host();
}

/// `gap` 0 or 8: rows stay aligned; 3: they do not.
template <class T>
void expect_as_host(const RuleCase& c, std::int64_t gap) {
  SCOPED_TRACE(testing::Message() << c << ", " << gap << " between rows");
  const AttentionShape& s = c.shape;
  constexpr DType dtype = dtype_of<T>::value;
  Rows<T> q(c.queries(), c.q_width(), gap, 1), k(c.keys(), c.kv_width(), 0, 2), v(c.keys(), c.kv_width(), gap, 3),
      dq(c.queries(), c.q_width(), 0, 4), dk(c.keys(), c.kv_width(), gap, 5), dv(c.keys(), c.kv_width(), 0, 6);
  HostDeviceTensor<T> out(Shape{c.queries(), c.q_width()}, T(7.0F)),
      dout(normals_of<T>(c.queries() * c.q_width(), 7), Shape{c.queries(), c.q_width()}),
      sinks(normals_of<T>(s.heads, 8), Shape{s.heads});
  HostDeviceTensor<float> lse(Shape{s.batch, s.heads, s.tokens}, 0), dsinks(Shape{s.heads}, 1);
  HostDeviceTensor<std::int32_t> positions(rule_positions(c), Shape{s.batch, s.num_keys()});
  Workspace host_forward(attention_forward_workspace(s, dtype)), host_backward(attention_backward_workspace(s, dtype));
  const DeviceMemory workspace(std::max(attention_forward_workspace(s, dtype, test_device()),
                                        attention_backward_workspace(s, dtype, test_device())));
  const auto run = [&](bool device, StreamView stream) {
    const AttentionArgs of{.shape = s,
                           .qkv = {q.on(device), k.on(device), v.on(device)},
                           .scale = scale,
                           .sinks = s.sinks ? on(sinks, device) : TensorView{},
                           .positions = c.documents ? on(positions, device) : TensorView{}};
    attention_forward({.of = of,
                       .out = on(out, device),
                       .lse = on(lse, device),
                       .workspace = device ? workspace.view() : host_forward.view()},
                      stream);
    attention_backward({.of = of,
                        .dout = on(dout, device),
                        .out = on(out, device),
                        .lse = on(lse, device),
                        .dqkv = {dq.on(device), dk.on(device), dv.on(device)},
                        .dsinks = s.sinks ? on(dsinks, device) : TensorView{},
                        .accumulate_dsinks = true,
                        .workspace = device ? workspace.view() : host_backward.view()},
                       stream);
  };
  DeviceStream stream;
  run(false, host_stream);
  run(true, stream.view());
  stream.synchronize();
  EXPECT_LE(device_error(out), 2 * tolerance<T>);
  EXPECT_LE(device_error(lse), 1e-5);
  const double backward = std::is_same_v<T, float> ? 2e-5 : 3 * tolerance<T>;
  for (Rows<T>* gradient : {&dq, &dk, &dv}) EXPECT_LE(device_error(gradient->tensor), backward);
  EXPECT_LE(device_error(dsinks), backward);
}

TYPED_TEST(CudaAttentionRules, AreTheHosts) {
  TESSERA_NEEDS_DEVICE();
  const std::int64_t gaps[] = {0, 8, 3};
  int i = -1;
  for (const RuleCase& c : device_cases()) {
    ++i;
    if (small_problems() && i % 2 == (std::is_same_v<TypeParam, float> ? 0 : 1)) continue;  // those of the other type
    expect_as_host<TypeParam>(c, gaps[i % 3]);
  }
}

TEST(CudaAttentionRefusal, NamesWhatABackendDoesNotTake) {
  AttentionShape s{1, 64, 2, 2, 64};
  const auto refusal = [&](AttentionBackend backend, DType dtype = DType::bf16) {
    return attention_refusal(backend, s, dtype);
  };
  EXPECT_EQ(refusal(AttentionBackend::own), "");
  EXPECT_EQ(refusal(AttentionBackend::own, DType::f64), "attention of fp64 is not supported on a GPU");
  const bool has_cudnn = refusal(AttentionBackend::cudnn).empty();
  const auto expect = [&](const char* why) {
    if (has_cudnn) { EXPECT_EQ(refusal(AttentionBackend::cudnn), why); }
    EXPECT_EQ(refusal(AttentionBackend::own), "");
    s = {1, 64, 2, 2, 64};
  };
  s.window = 9;
  expect("");
  s.soft_cap = 30;
  expect("cuDNN's attention takes no soft cap");
  s.sinks = true;
  expect("cuDNN's attention takes no sinks");
  s.keys = 70;
  expect("cuDNN's attention takes no queries of a part of a row");
  s.head_dim = 300;
  EXPECT_NE(refusal(AttentionBackend::own), "");
}

/// New tokens of rows at different places of a cache.
template <class T>
void expect_cache_as_host(const AttentionShape& s, std::int64_t capacity, std::vector<std::int32_t> places) {
  const RuleCase c{s};
  SCOPED_TRACE(testing::Message() << c << ", capacity " << capacity);
  const Shape shape{s.batch, s.kv_heads, capacity, s.head_dim};
  Rows<T> q(c.queries(), c.q_width(), 8, 1), k(c.queries(), c.kv_width(), 0, 2), v(c.queries(), c.kv_width(), 8, 3);
  HostDeviceTensor<T> keys(normals_of<T>(shape.numel(), 4), shape), values(normals_of<T>(shape.numel(), 5), shape),
      sinks(normals_of<T>(s.heads, 6), Shape{s.heads}), out(Shape{c.queries(), c.q_width()}, T(7.0F));
  HostDeviceTensor<float> lse(Shape{s.batch, s.heads, s.tokens}, 0);
  HostDeviceTensor<std::int32_t> positions(std::move(places), Shape{s.batch, s.tokens});
  Workspace host_workspace(cached_attention_workspace(s, dtype_of<T>::value));
  const DeviceMemory workspace(cached_attention_workspace(s, dtype_of<T>::value, test_device()));
  const auto run = [&](bool device, StreamView stream) {
    cached_attention({.of = {.shape = s,
                             .qkv = {q.on(device), k.on(device), v.on(device)},
                             .scale = scale,
                             .sinks = s.sinks ? on(sinks, device) : TensorView{},
                             .positions = on(positions, device)},
                      .cache = {on(keys, device), on(values, device)},
                      .out = on(out, device),
                      .lse = on(lse, device),
                      .workspace = device ? workspace.view() : host_workspace.view(),
                      .appends = true},
                     stream);
  };
  DeviceStream stream;
  run(false, host_stream);
  run(true, stream.view());
  stream.synchronize();
  EXPECT_EQ(bytes_of(keys.download()), bytes_of(keys.host()));
  EXPECT_EQ(bytes_of(values.download()), bytes_of(values.host()));
  EXPECT_LE(device_error(out), 2 * tolerance<T>);
  EXPECT_LE(device_error(lse), 1e-5);
}

TYPED_TEST(CudaAttentionRules, OverACacheAreTheHosts) {
  TESSERA_NEEDS_DEVICE();
  for (const std::int64_t window : {0, 1, 70, 3000})
    for (const bool capped : {false, true})
      for (const bool sinks : {false, true}) {
        if (window == 0 && !capped && !sinks) continue;
        AttentionShape s{.batch = 2, .tokens = 1, .heads = 6, .kv_heads = 2, .head_dim = 64, .window = window};
        s.soft_cap = capped ? 2 : 0, s.sinks = sinks;
        expect_cache_as_host<TypeParam>(s, 60, {0, 59});                         // one split
        expect_cache_as_host<TypeParam>(s, 2100, {1999, 64});                    // many
        if (window > 1) expect_cache_as_host<TypeParam>(s, window, {6007, 64});  // a ring
        s.tokens = 2, s.head_dim = 33;  // rows that are not aligned; two tokens
        expect_cache_as_host<TypeParam>(s, 300, {250, 251, 17, 18});
        if (window > 0) expect_cache_as_host<TypeParam>(s, window + 1, {6001, 6002, 17, 18});
      }
}

TYPED_TEST(CudaAttentionRules, AppendToARing) {
  TESSERA_NEEDS_DEVICE();
  const AttentionShape s{.batch = 2, .tokens = 5, .heads = 2, .kv_heads = 2, .head_dim = 8, .window = 6};
  Rows<TypeParam> k(10, 16, 0, 1), v(10, 16, 8, 2);
  const Shape shape{2, 2, 6, 8};
  HostDeviceTensor<TypeParam> keys(shape, TypeParam(7.0F)), values(shape, TypeParam(7.0F));
  DeviceStream stream;
  for (const bool device : {false, true})
    cache_append({.shape = s,
                  .k = k.on(device),
                  .v = v.on(device),
                  .positions = {},
                  .cache = {on(keys, device), on(values, device)},
                  .first = 9},
                 device ? stream.view() : host_stream);
  stream.synchronize();
  EXPECT_EQ(bytes_of(keys.download()), bytes_of(keys.host()));
  EXPECT_EQ(bytes_of(values.download()), bytes_of(values.host()));
}

}  // namespace
}  // namespace tessera::kernels
