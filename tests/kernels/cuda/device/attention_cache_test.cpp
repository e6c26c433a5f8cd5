// SPDX-License-Identifier: Apache-2.0
// Attention with a cache on a device against the host: appended tokens, groups of heads, rows at different positions.
#include "kernels/attention_cache.hpp"

#include "host_device_tensor.hpp"

namespace tessera::kernels {
namespace {

template <class T>
class CudaAttentionCache : public testing::Test {};
TYPED_TEST_SUITE(CudaAttentionCache, ElementTypes);

TYPED_TEST(CudaAttentionCache, IsTheHosts) {
  TESSERA_NEEDS_DEVICE();
  using T = TypeParam;
  struct Case {
    AttentionShape shape;
    std::int64_t capacity;
  };
  for (const Case& c : {Case{{1, 1, 1, 1, 8}, 1}, Case{{2, 1, 6, 2, 64}, 131}, Case{{3, 5, 8, 1, 40}, 320},
                        Case{{1, 2, 4, 2, 256}, 90}}) {
    const AttentionShape& s = c.shape;
    const std::int64_t rows = s.batch * s.tokens, width = (s.heads + 2 * s.kv_heads) * s.head_dim;
    const Shape cache_shape{s.batch, s.kv_heads, c.capacity, s.head_dim};
    HostDeviceTensor<T> qkv(normals_of<T>(rows * width, 1), Shape{rows, width}),
        keys(normals_of<T>(cache_shape.numel(), 2), cache_shape);
    HostDeviceTensor<T> values(normals_of<T>(cache_shape.numel(), 3), cache_shape),
        out(Shape{rows, s.heads * s.head_dim}, T(7.0F));
    std::vector<std::int32_t> cached;
    for (std::int64_t b = 0; b < s.batch; ++b)
      for (std::int64_t t = 0; t < s.tokens; ++t)
        cached.push_back(static_cast<std::int32_t>((c.capacity - s.tokens) / (b + 1) + t));
    HostDeviceTensor<std::int32_t> positions(cached, Shape{s.batch, s.tokens});
    Workspace workspace(cached_attention_workspace(s, dtype_of<T>::value));
    const auto run = [&](bool device, StreamView stream) {
      const AttentionCache cache{device ? keys.on_device() : keys.on_host(),
                                 device ? values.on_device() : values.on_host()};
      const TensorView all = device ? qkv.on_device() : qkv.on_host(),
                       at = device ? positions.on_device() : positions.on_host();
      cache_append({.shape = s, .qkv = all, .positions = at, .cache = cache}, stream);
      cached_attention({.shape = s,
                        .qkv = all,
                        .positions = at,
                        .cache = cache,
                        .out = device ? out.on_device() : out.on_host(),
                        .scale = 0.2,
                        .workspace = workspace.view()},
                       stream);
    };
    DeviceStream stream;
    run(false, host_stream);
    run(true, stream.view());
    stream.synchronize();
    EXPECT_EQ(bytes_of(keys.download()), bytes_of(keys.host()));
    EXPECT_EQ(bytes_of(values.download()), bytes_of(values.host()));
    EXPECT_LE(device_error(out), 2 * tolerance<T>);
  }
}

}  // namespace
}  // namespace tessera::kernels
