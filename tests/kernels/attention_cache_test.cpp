// SPDX-License-Identifier: Apache-2.0
// Attention with a KV cache against attention over all tokens at once, in both dtypes, on every instruction set and
// number of threads.

#include "kernels/attention_cache.hpp"

#include "reference.hpp"

namespace tessera::kernels {
namespace {

struct Case {
  std::int64_t batch, tokens, heads, kv_heads, head_dim, capacity;
};

/// Largest difference between the last `fresh` tokens by cache and by attention_forward over all tokens.
template <class T>
double distance(const Case& c, std::int64_t fresh) {
  const std::int64_t width = (c.heads + 2 * c.kv_heads) * c.head_dim, out_width = c.heads * c.head_dim,
                     before = c.tokens - fresh;
  const AttentionShape full{c.batch, c.tokens, c.heads, c.kv_heads, c.head_dim};
  auto qkv = random_vector<T>(c.batch * c.tokens * width, 5);
  std::vector<T> expected(static_cast<std::size_t>(c.batch * c.tokens * out_width)),
      ours(static_cast<std::size_t>(c.batch * fresh * out_width));
  Workspace forward(attention_forward_workspace(full, dtype_of<T>::value));
  attention_forward({.of = {.shape = full, .qkv = fused_qkv(full, view(qkv)), .scale = 0.3},
                     .out = {expected.data(), {c.batch, c.tokens, out_width}},
                     .lse = {},
                     .workspace = forward.view()},
                    host_stream);
  const Shape cache_shape{c.batch, c.kv_heads, c.capacity, c.head_dim};
  std::vector<T> keys(static_cast<std::size_t>(cache_shape.numel()), std::numeric_limits<T>::quiet_NaN()),
      values = keys;
  const AttentionCache cache{{keys.data(), cache_shape}, {values.data(), cache_shape}};
  const auto part = [&](std::int64_t first, std::int64_t count) {
    std::vector<T> rows;
    for (std::int64_t b = 0; b < c.batch; ++b) {
      const auto at = qkv.begin() + (b * c.tokens + first) * width;
      rows.insert(rows.end(), at, at + count * width);
    }
    return rows;
  };
  auto old = part(0, before), now = part(before, fresh);
  const auto append = [&](const AttentionShape& of, std::vector<T>& rows, const TensorView& positions) {
    const QkvHeads heads = fused_qkv(of, view(rows));
    cache_append({.shape = of, .k = heads.k, .v = heads.v, .positions = positions, .cache = cache}, host_stream);
  };
  if (before > 0) append({c.batch, before, c.heads, c.kv_heads, c.head_dim}, old, {});
  std::vector<std::int32_t> positions;
  for (std::int64_t i = 0; i < c.batch * fresh; ++i) positions.push_back(static_cast<std::int32_t>(before + i % fresh));
  const AttentionShape shape{c.batch, fresh, c.heads, c.kv_heads, c.head_dim};
  const TensorView where{positions.data(), {c.batch, fresh}};
  append(shape, now, where);
  Workspace workspace(cached_attention_workspace(shape, dtype_of<T>::value));
  cached_attention({.of = {.shape = shape, .qkv = fused_qkv(shape, view(now)), .scale = 0.3, .positions = where},
                    .cache = cache,
                    .out = {ours.data(), {c.batch, fresh, out_width}},
                    .workspace = workspace.view()},
                   host_stream);
  EXPECT_TRUE(workspace.intact());
  double worst = 0;
  for (std::int64_t b = 0; b < c.batch; ++b)
    for (std::int64_t i = 0; i < fresh * out_width; ++i) {
      const double d =
          std::abs(static_cast<double>(ours[static_cast<std::size_t>(b * fresh * out_width + i)]) -
                   static_cast<double>(expected[static_cast<std::size_t>((b * c.tokens + before) * out_width + i)]));
      worst = d <= worst ? worst : d;
    }
  return worst;
}

TEST(CachedAttention, IsAttention) {
  const Case cases[] = {{1, 1, 1, 1, 1, 1},      {2, 7, 4, 4, 8, 9},       {3, 130, 6, 2, 64, 131},
                        {2, 300, 8, 1, 40, 320}, {1, 257, 4, 2, 128, 257}, {2, 129, 5, 5, 7, 200},
                        {1, 64, 9, 3, 33, 64}};
  for (const Isa isa : instruction_sets())
    for (const int threads : {1, 2}) {
      const Setting setting(threads, isa);
      for (const Case& c : cases)
        for (const std::int64_t fresh : {std::int64_t{1}, std::min<std::int64_t>(c.tokens, 5)}) {
          EXPECT_LE(distance<double>(c, fresh), 1e-13)
              << c.tokens << " tokens of " << c.head_dim << ", " << fresh << " new";
          EXPECT_LE(distance<float>(c, fresh), 2e-5)
              << c.tokens << " tokens of " << c.head_dim << ", " << fresh << " new";
        }
    }
}

}  // namespace
}  // namespace tessera::kernels
