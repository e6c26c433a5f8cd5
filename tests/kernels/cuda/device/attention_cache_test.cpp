// SPDX-License-Identifier: Apache-2.0
// Attention with a cache on a device against the host: appended tokens, groups of heads, rows at different positions.
#include "kernels/attention_cache.hpp"

#include "host_device_tensor.hpp"
#include "kernels/cuda/attention_splits.hpp"

namespace tessera::kernels {
namespace {

template <class T>
class CudaAttentionCache : public testing::Test {};
TYPED_TEST_SUITE(CudaAttentionCache, ElementTypes);

struct Case {
  AttentionShape shape;
  std::int64_t capacity;
  std::vector<std::int64_t> lengths;  // of the rows, the new tokens included
};

template <class T>
void expect_as_host(const Case& c, bool appends) {
  const AttentionShape& s = c.shape;
  SCOPED_TRACE(testing::Message() << s.batch << " rows of " << s.tokens << " tokens, heads " << s.heads << " of "
                                  << s.head_dim << ", " << s.kv_heads << " KV heads, capacity " << c.capacity);
  const std::int64_t rows = s.batch * s.tokens, width = (s.heads + 2 * s.kv_heads) * s.head_dim;
  const Shape cache_shape{s.batch, s.kv_heads, c.capacity, s.head_dim};
  auto old_keys = normals_of<T>(cache_shape.numel(), 2), old_values = normals_of<T>(cache_shape.numel(), 3);
  for (std::int64_t b = 0; b < s.batch; ++b)  // what lies beyond a row's tokens is never read
    for (std::int64_t h = 0; h < s.kv_heads; ++h)
      for (std::int64_t i = c.lengths[static_cast<std::size_t>(b)] * s.head_dim; i < c.capacity * s.head_dim; ++i) {
        const auto at = static_cast<std::size_t>((b * s.kv_heads + h) * c.capacity * s.head_dim + i);
        old_keys[at] = old_values[at] = T(std::numeric_limits<float>::quiet_NaN());
      }
  HostDeviceTensor<T> qkv(normals_of<T>(rows * width, 1), Shape{rows, width}), keys(old_keys, cache_shape);
  HostDeviceTensor<T> values(old_values, cache_shape), out(Shape{rows, s.heads * s.head_dim}, T(7.0F));
  std::vector<std::int32_t> cached;
  for (std::int64_t b = 0; b < s.batch; ++b)
    for (std::int64_t t = 0; t < s.tokens; ++t)
      cached.push_back(static_cast<std::int32_t>(c.lengths[static_cast<std::size_t>(b)] - s.tokens + t));
  HostDeviceTensor<std::int32_t> positions(cached, Shape{s.batch, s.tokens});
  Workspace host_workspace(cached_attention_workspace(s, dtype_of<T>::value));
  const DeviceMemory device_workspace(cached_attention_workspace(s, dtype_of<T>::value, test_device()));
  const auto run = [&](bool device, StreamView stream) {
    const AttentionCache cache{device ? keys.on_device() : keys.on_host(),
                               device ? values.on_device() : values.on_host()};
    const TensorView all = device ? qkv.on_device() : qkv.on_host(),
                     at = device ? positions.on_device() : positions.on_host();
    const QkvHeads heads = fused_qkv(s, all);
    if (!appends) cache_append({.shape = s, .k = heads.k, .v = heads.v, .positions = at, .cache = cache}, stream);
    cached_attention({.of = {.shape = s, .qkv = heads, .scale = 0.2, .positions = at},
                      .cache = cache,
                      .out = device ? out.on_device() : out.on_host(),
                      .workspace = device ? device_workspace.view() : host_workspace.view(),
                      .appends = appends},
                     stream);
  };
  DeviceStream stream;
  run(false, host_stream);
  run(true, stream.view());
  stream.synchronize();
  EXPECT_EQ(bytes_of(keys.download()), bytes_of(keys.host()));
  EXPECT_EQ(bytes_of(values.download()), bytes_of(values.host()));
  EXPECT_LE(device_error(out), 2 * tolerance<T>);
  const auto first = out.download();
  run(true, stream.view());
  stream.synchronize();
  EXPECT_EQ(bytes_of(out.download()), bytes_of(first));
}

// Capacities of one split and of many; rows within one tile, at its edge, and in some of the splits only.
const Case cases[] = {{{1, 1, 1, 1, 8}, 1, {1}},
                      {{2, 1, 6, 2, 64}, 131, {131, 65}},
                      {{3, 5, 8, 1, 40}, 320, {320, 160, 106}},
                      {{1, 2, 4, 2, 256}, 90, {90}},
                      {{2, 1, 12, 2, 128}, 700, {1, 640}},
                      {{1, 1, 11, 1, 33}, 150, {149}},  // more heads than a block has; rows that are not aligned
                      {{1, 1, 4, 4, 128}, 2100, {2100}},
                      {{1, 1, 6, 1, 64}, 4500, {4321}}};

TYPED_TEST(CudaAttentionCache, IsTheHosts) {
  TESSERA_NEEDS_DEVICE();
  for (const Case& c : cases)
    for (const bool appends : {false, true}) expect_as_host<TypeParam>(c, appends);
}

TEST(CudaAttentionSplits, FitTheWorkspaceOfAnyCapacity) {
  for (const std::int64_t rows : {1, 2, 7, 64, 300})
    for (const std::int64_t kv_heads : {1, 2, 8, 32})
      for (const std::int64_t head_dim : {64, 128, 256})
        for (const std::int64_t capacity : {1, 100, 5000, 131072}) {
          const AttentionShape s{rows, 1, kv_heads * 4, kv_heads, head_dim};
          const cuda::AttentionSplits splits = cuda::splits_of(s, capacity, 2);
          EXPECT_LE(splits.count, std::max<std::int64_t>(1, (capacity + splits.tile - 1) / splits.tile));
          if (splits.count > 1) { EXPECT_LE(splits.workspace(s), cuda::most_split_workspace(s)); }
        }
  EXPECT_EQ(cuda::splits_of({1, 1, 12, 2, 128}, 1024, 2).count, 32);
  EXPECT_EQ(cuda::splits_of({64, 1, 12, 2, 128}, 1024, 2).count, 2);
}

}  // namespace
}  // namespace tessera::kernels
