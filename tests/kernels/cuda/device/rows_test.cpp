// SPDX-License-Identifier: Apache-2.0
// Operations that move rows, on a device against the host: embedding with documents, routing, dispatch, combination.
#include <numeric>

#include "host_device_tensor.hpp"
#include "kernels/balance.hpp"
#include "kernels/cuda/sort_rows.hpp"
#include "kernels/embedding.hpp"
#include "kernels/moe.hpp"

namespace tessera::kernels {
namespace {

template <class T>
class CudaRows : public testing::Test {};
TYPED_TEST_SUITE(CudaRows, ElementTypes);

std::vector<std::int32_t> integers_below(std::int64_t n, std::int64_t limit, std::uint64_t seed) {
  std::vector<std::int32_t> v(static_cast<std::size_t>(n));
  for (std::size_t i = 0; i < v.size(); ++i)
    v[i] = static_cast<std::int32_t>(uniform(seed, i) * static_cast<double>(limit));
  return v;
}

TYPED_TEST(CudaRows, EmbeddingToTheBit) {
  TESSERA_NEEDS_DEVICE();
  using T = TypeParam;
  struct Case {
    std::int64_t batch, tokens, channels, vocab;
    bool positions;
  };
  std::vector<Case> cases{{2, 3, 5, 4, false}, {3, 700, 64, 1, false}, {4, 300, 130, 50, true}};
  if (!small_problems()) cases.insert(cases.end(), {{1, 1500, 1025, 3000, true}, {3, 1777, 264, 70000, true}});
  for (const Case& c : cases) {
    const std::int64_t rows = c.batch * c.tokens;
    HostDeviceTensor<std::int32_t> ids(integers_below(rows, c.vocab, 1), Shape{c.batch, c.tokens}),
        positions(integers_below(rows, c.tokens, 2), Shape{c.batch, c.tokens});
    HostDeviceTensor<T> table(normals_of<T>(c.vocab * c.channels, 3), Shape{c.vocab, c.channels}),
        position_values(normals_of<T>(c.tokens * c.channels, 4), Shape{c.tokens, c.channels});
    const Shape shape{c.batch, c.tokens, c.channels};
    HostDeviceTensor<T> y(shape, T(7.0F)), dy(normals_of<T>(rows * c.channels, 5), shape);
    DeviceMemory workspace(embedding_backward_workspace(rows, test_device()));
    DeviceStream stream;
    const auto at = [&](bool device) {
      return !c.positions ? TensorView{} : device ? positions.on_device() : positions.on_host();
    };
    embedding_forward({.ids = ids.on_host(),
                       .tokens_table = table.on_host(),
                       .positions_table = position_values.on_host(),
                       .positions = at(false),
                       .y = y.on_host()},
                      host_stream);
    embedding_forward({.ids = ids.on_device(),
                       .tokens_table = table.on_device(),
                       .positions_table = position_values.on_device(),
                       .positions = at(true),
                       .y = y.on_device()},
                      stream.view());
    stream.synchronize();
    EXPECT_EQ(bytes_of(y.download()), bytes_of(y.host()));
    for (const bool accumulate : {false, true}) {
      HostDeviceTensor<float> dtable(normals_of<float>(c.vocab * c.channels, 6), Shape{c.vocab, c.channels}),
          dplaces(normals_of<float>(c.tokens * c.channels, 7), Shape{c.tokens, c.channels});
      embedding_backward({.ids = ids.on_host(),
                          .dy = dy.on_host(),
                          .dtokens_table = dtable.on_host(),
                          .accumulate_tokens = accumulate,
                          .dpositions_table = dplaces.on_host(),
                          .accumulate_positions = accumulate,
                          .positions = at(false)},
                         host_stream);
      embedding_backward({.ids = ids.on_device(),
                          .dy = dy.on_device(),
                          .dtokens_table = dtable.on_device(),
                          .accumulate_tokens = accumulate,
                          .dpositions_table = dplaces.on_device(),
                          .accumulate_positions = accumulate,
                          .positions = at(true),
                          .workspace = workspace.view()},
                         stream.view());
      stream.synchronize();
      EXPECT_EQ(bytes_of(dtable.download()), bytes_of(dtable.host()));
      EXPECT_EQ(bytes_of(dplaces.download()), bytes_of(dplaces.host()));
    }
  }
}

TEST(CudaSort, IsStableForKeysOfAnyWidth) {
  TESSERA_NEEDS_DEVICE();
  for (const std::int64_t rows : {1, 31, 257, 2048, 2049, 70001})
    for (const std::int64_t limit : {1, 2, 256, 257, 50257, 70000, 20000000}) {
      HostDeviceTensor<std::int32_t> keys(integers_below(rows, limit, 3), Shape{rows});
      DeviceMemory workspace(cuda::sort_workspace(rows));
      DeviceStream stream;
      const auto sorted = cuda::sort_rows({keys.data(), rows, limit, workspace.view().data}, stream.view());
      stream.synchronize();
      std::vector<std::int32_t> order(static_cast<std::size_t>(rows)), got(order.size());
      std::iota(order.begin(), order.end(), 0);
      std::stable_sort(order.begin(), order.end(), [&](std::int32_t a, std::int32_t b) {
        return keys.host()[static_cast<std::size_t>(a)] < keys.host()[static_cast<std::size_t>(b)];
      });
      copy_now(test_device(), got.data(), sorted.rows, got.size() * sizeof(std::int32_t));
      EXPECT_EQ(got, order) << rows << " rows, keys below " << limit;
    }
}

TEST(CudaExperts, ChooseAsTheHostDoes) {
  TESSERA_NEEDS_DEVICE();
  struct Case {
    std::int64_t tokens, experts, k;
  };
  for (const Case& c : {Case{5, 3, 1}, Case{37, 8, 2}, Case{300, 129, 8}})
    for (const ExpertWeights weigh :
         {ExpertWeights::normalized, ExpertWeights::probabilities, ExpertWeights::sigmoids}) {
      const Shape shape{c.tokens, c.experts}, chosen{c.tokens, c.k};
      auto values = normals_of<float>(c.tokens * c.experts, 8);
      values[1] = values[0];  // the lowest index among equals
      HostDeviceTensor<float> logits(values, shape), probs(shape, 0.0F), weights(chosen, 0.0F),
          dweights(normals_of<float>(c.tokens * c.k, 9), chosen), dlogits(shape, 0.0F);
      HostDeviceTensor<std::int32_t> experts(chosen, 0);
      HostDeviceTensor<double> counts(Shape{c.experts}, 0.0), sums(Shape{c.experts}, 0.0),
          balance(normals_of<double>(c.experts, 10, 0.01), Shape{c.experts});
      DeviceStream stream;
      route({.logits = logits.on_host(),
             .probs = probs.on_host(),
             .experts = experts.on_host(),
             .weights = weights.on_host(),
             .weigh = weigh,
             .counts = counts.on_host(),
             .sums = sums.on_host()},
            host_stream);
      route({.logits = logits.on_device(),
             .probs = probs.on_device(),
             .experts = experts.on_device(),
             .weights = weights.on_device(),
             .weigh = weigh,
             .counts = counts.on_device(),
             .sums = sums.on_device()},
            stream.view());
      stream.synchronize();
      EXPECT_EQ(experts.download(), experts.host());
      EXPECT_EQ(counts.download(), counts.host());
      EXPECT_LE(device_error(probs), 2e-6);
      EXPECT_LE(device_error(weights), 2e-6);
      EXPECT_LE(relative_error(sums.download(), sums.host()), 1e-6);
      route_backward({.dweights = dweights.on_host(),
                      .probs = probs.on_host(),
                      .experts = experts.on_host(),
                      .weights = weights.on_host(),
                      .weigh = weigh,
                      .balance = balance.on_host(),
                      .dlogits = dlogits.on_host()},
                     host_stream);
      route_backward({.dweights = dweights.on_device(),
                      .probs = probs.on_device(),
                      .experts = experts.on_device(),
                      .weights = weights.on_device(),
                      .weigh = weigh,
                      .balance = balance.on_device(),
                      .dlogits = dlogits.on_device()},
                     stream.view());
      stream.synchronize();
      EXPECT_LE(device_error(dlogits), 2e-5);
    }
}

/// Rows of 37 tokens of 3 documents, the last seven tokens padding.
std::pair<std::vector<std::int32_t>, std::vector<std::int32_t>> packed_words(std::int64_t rows) {
  std::vector<std::int32_t> positions, targets;
  for (std::int64_t row = 0; row < rows; ++row)
    for (std::int32_t t = 0; t < 37; ++t) {
      positions.push_back(t < 30 ? t % 10 : 0);
      targets.push_back(t < 30 && t % 10 < 9 ? t : ignore_index);
    }
  return {positions, targets};
}

TEST(CudaExperts, LeavePaddingOutAndBalanceToTheBit) {
  TESSERA_NEEDS_DEVICE();
  const std::int64_t batch = 9, tokens = batch * 37, num = 67, k = 3, layers = 4;
  auto [position_values, wanted] = packed_words(batch);
  HostDeviceTensor<std::int32_t> positions(position_values, Shape{batch, 37}), targets(wanted, Shape{batch, 37}),
      experts(Shape{tokens, k}, 0);
  HostDeviceTensor<float> logits(normals_of<float>(tokens * num, 1), Shape{tokens, num}),
      weights(Shape{tokens, k}, 0.0F);
  HostDeviceTensor<float> dweights(normals_of<float>(tokens * k, 2), Shape{tokens, k}),
      dlogits(Shape{tokens, num}, 7.0F);
  HostDeviceTensor<double> router(Shape{layers, 2, num}, 1.5), slopes(Shape{num}, 0.0),
      scales(std::vector<double>{4.0 / 700, 4.0}, Shape{2});
  HostDeviceTensor<std::int64_t> sums(std::vector<std::int64_t>(layers + 1, 3), Shape{layers + 1});
  const auto run = [&](bool device, StreamView stream) {
    const auto of = [&](auto& host_device_tensor) {
      return device ? host_device_tensor.on_device() : host_device_tensor.on_host();
    };
    const TokenFields fields{of(positions), of(targets)};
    const TensorView last = of(router).rows(layers - 1, 1).reshape({2, num});
    route({.logits = of(logits),
           .probs = of(logits),
           .experts = of(experts),
           .weights = of(weights),
           .counts = last.rows(0, 1).reshape({num}),
           .sums = last.rows(1, 1).reshape({num}),
           .fields = fields},
          stream);
    const BalanceArgs balance{of(router), fields, static_cast<const double*>(of(scales).data)};
    balance_gradient({.of = balance, .coefficient = 0.25, .out = of(slopes)}, stream);
    add_balance_losses({.of = balance,
                        .gradient_scale = static_cast<const double*>(of(scales).data) + 1,
                        .unit = 0x1p-36,
                        .sums = static_cast<std::int64_t*>(of(sums).data)},
                       stream);
    route_backward({.dweights = of(dweights),
                    .probs = of(logits),
                    .experts = of(experts),
                    .weights = of(weights),
                    .balance = of(slopes),
                    .fields = fields,
                    .dlogits = of(dlogits)},
                   stream);
  };
  DeviceStream stream;
  run(true, stream.view());
  stream.synchronize();
  run(false, host_stream);
  EXPECT_EQ(experts.download(), experts.host());
  EXPECT_LE(relative_error(router.download(), router.host()), 1e-6);
  EXPECT_LE(relative_error(slopes.download(), slopes.host()), 1e-12);  // of counts, which are exact
  EXPECT_LE(relative_error(sums.download(), sums.host()), 1e-6);
  EXPECT_LE(device_error(dlogits), 2e-5);
  const auto slope = dlogits.download();
  for (std::int64_t i = 30 * num; i < 37 * num; ++i) EXPECT_EQ(slope[static_cast<std::size_t>(i)], 0.0F);
  // From the same statistics: the host's bits.
  router.host() = router.download();
  const auto again = sums.download();
  sums.host().assign(sums.host().size(), 3);
  const TokenFields fields{positions.on_host(), targets.on_host()};
  const BalanceArgs balance{router.on_host(), fields, scales.host().data()};
  add_balance_losses(
      {.of = balance, .gradient_scale = scales.host().data() + 1, .unit = 0x1p-36, .sums = sums.host().data()},
      host_stream);
  balance_gradient({.of = balance, .coefficient = 0.25, .out = slopes.on_host()}, host_stream);
  EXPECT_EQ(again, sums.host());
  EXPECT_EQ(slopes.download(), slopes.host());
}

TEST(CudaDispatch, IsTheHosts) {
  TESSERA_NEEDS_DEVICE();
  struct Case {
    std::int64_t slots, experts;
  };
  for (const Case& c :
       {Case{1, 3}, Case{255, 8}, Case{256, 256}, Case{2049, 2}, Case{5000, 8}, Case{100000, 256}, Case{5000, 300}}) {
    SCOPED_TRACE(testing::Message() << c.slots << " slots, " << c.experts << " experts");
    HostDeviceTensor<std::int32_t> experts(integers_below(c.slots, c.experts, 15), Shape{c.slots, 1});
    HostDeviceTensor<std::int32_t> slot_of(Shape{c.slots}, -1), row_of(Shape{c.slots}, -1),
        offsets(Shape{c.experts + 1}, -1);
    DeviceStream stream;
    make_dispatch(experts.on_host(), {slot_of.on_host(), row_of.on_host(), offsets.on_host()}, host_stream);
    make_dispatch(experts.on_device(), {slot_of.on_device(), row_of.on_device(), offsets.on_device()}, stream.view());
    stream.synchronize();
    EXPECT_EQ(slot_of.download(), slot_of.host());
    EXPECT_EQ(row_of.download(), row_of.host());
    EXPECT_EQ(offsets.download(), offsets.host());
  }
}

TYPED_TEST(CudaRows, ExpertsRowsThereAndBack) {
  TESSERA_NEEDS_DEVICE();
  using T = TypeParam;
  for (const std::int64_t columns : {5, 128, 1030}) {
    const std::int64_t tokens = 133, k = 3, num = 11, slots = tokens * k;
    HostDeviceTensor<std::int32_t> experts(integers_below(slots, num - 1, 10),
                                           Shape{tokens, k});  // the last expert has no rows
    HostDeviceTensor<std::int32_t> slot_of(Shape{slots}, 0), row_of(Shape{slots}, 0), offsets(Shape{num + 1}, 0);
    HostDeviceTensor<T> x(normals_of<T>(tokens * columns, 11), Shape{tokens, columns}),
        rows(Shape{slots, columns}, T(0.0F)), b(normals_of<T>(slots * columns, 12), Shape{slots, columns});
    HostDeviceTensor<T> y(normals_of<T>(tokens * columns, 13), Shape{tokens, columns});
    HostDeviceTensor<float> weights(normals_of<float>(slots, 14), Shape{tokens, k}), dweights(Shape{tokens, k}, 0.0F);
    const Dispatch host{slot_of.on_host(), row_of.on_host(), offsets.on_host()},
        device{slot_of.on_device(), row_of.on_device(), offsets.on_device()};
    DeviceStream stream;
    make_dispatch(experts.on_host(), host, host_stream);
    make_dispatch(experts.on_device(), device, stream.view());
    gather_rows(x.on_host(), host, rows.on_host(), host_stream);
    gather_rows(x.on_device(), device, rows.on_device(), stream.view());
    stream.synchronize();
    EXPECT_EQ(slot_of.download(), slot_of.host());
    EXPECT_EQ(row_of.download(), row_of.host());
    EXPECT_EQ(offsets.download(), offsets.host());
    EXPECT_EQ(bytes_of(rows.download()), bytes_of(rows.host()));
    for (const bool accumulate : {false, true}) {
      combine_rows({.x = rows.on_host(),
                    .weights = weights.on_host(),
                    .dispatch = host,
                    .y = y.on_host(),
                    .accumulate = accumulate},
                   host_stream);
      combine_rows({.x = rows.on_device(),
                    .weights = weights.on_device(),
                    .dispatch = device,
                    .y = y.on_device(),
                    .accumulate = accumulate},
                   stream.view());
      stream.synchronize();
      EXPECT_LE(device_error(y), tolerance<T>);
    }
    combine_weights_backward({.a = rows.on_host(),
                              .b = b.on_host(),
                              .weights = weights.on_host(),
                              .dispatch = host,
                              .dweights = dweights.on_host()},
                             host_stream);
    combine_weights_backward({.a = rows.on_device(),
                              .b = b.on_device(),
                              .weights = weights.on_device(),
                              .dispatch = device,
                              .dweights = dweights.on_device()},
                             stream.view());
    stream.synchronize();
    EXPECT_EQ(bytes_of(rows.download()), bytes_of(rows.host()));
    EXPECT_EQ(bytes_of(b.download()), bytes_of(b.host()));
    EXPECT_LE(device_error(dweights), 1e-5);
  }
}

}  // namespace
}  // namespace tessera::kernels
