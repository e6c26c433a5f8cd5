// SPDX-License-Identifier: Apache-2.0
// Parts of a vocabulary on a device against the host: statistics, losses, gradients, and lookups.

#include "host_device_tensor.hpp"
#include "kernels/cuda/ops.hpp"
#include "kernels/embedding.hpp"
#include "kernels/linear_cross_entropy.hpp"
#include "runtime/base/tensor_placement.hpp"

namespace tessera::kernels {
namespace {

template <class T>
class CudaVocabularyParts : public testing::Test {};
TYPED_TEST_SUITE(CudaVocabularyParts, ElementTypes);

struct PartsCase {
  std::int64_t n, c, v;
  int parts;
  LogitRules logits = {};
};

std::vector<std::int32_t> targets_of(const PartsCase& s) {
  std::vector<std::int32_t> t(static_cast<std::size_t>(s.n));
  for (std::size_t i = 0; i < t.size(); ++i)
    t[i] = i % 5 == 3 ? ignore_index : static_cast<std::int32_t>(uniform(4, i) * static_cast<double>(s.v));
  return t;
}

/// Loss and gradients of all parts, on one side.
template <class T>
struct PartsRun {
  explicit PartsRun(const PartsCase& of)
      : s(of),
        x(normals_of<T>(s.n * s.c, 1), Shape{s.n, s.c}),
        weight(normals_of<T>(s.v * s.c, 2, 0.3), Shape{s.v, s.c}),
        targets(targets_of(s), Shape{s.n}),
        weights(std::vector<float>(static_cast<std::size_t>(s.n), 0.75F), Shape{s.n}),
        dx(Shape{s.parts, s.n, s.c}, T(7.0F)),
        dweight(Shape{s.v, s.c}, 7.0F),
        statistics(Shape{s.parts, s.n, 4}, -1.0),
        merged(Shape{s.n, 4}, -1.0),
        scale(std::vector<double>{1.0 / 7}, Shape{1}),
        sums(Shape{static_cast<std::int64_t>(sizeof(LossSums) / 8)}, std::int64_t{0}) {}

  template <class View>
  void run(const View& at, StreamView stream, const TensorView& workspace) {
    for (int part = 0; part < s.parts; ++part) run_part(at, stream, workspace, part, false);
    merge_token_statistics({.parts = at(statistics),
                            .targets = at(targets),
                            .weights = at(weights),
                            .sums = reinterpret_cast<LossSums*>(at(sums).data),
                            .loss_scale = static_cast<const double*>(at(scale).data),
                            .merged = at(merged)},
                           stream);
    for (int part = 0; part < s.parts; ++part) run_part(at, stream, workspace, part, true);
  }
  template <class View>
  void run_part(const View& at, StreamView stream, const TensorView& workspace, int part, bool gradients) {
    const ElementRun rows = even_part(s.v, s.parts, part);
    LinearCrossEntropyArgs args;
    args.x = at(x);
    args.weight = at(weight).rows(rows.first, rows.length);
    args.targets = at(targets);
    args.logits = s.logits;
    args.workspace = workspace;
    args.part.first = rows.first;
    args.part.vocab = s.v;
    if (gradients) {
      args.dx = at(dx).rows(part, 1).reshape({s.n, s.c});
      args.dweight = at(dweight).rows(rows.first, rows.length);
      args.part.merged = at(merged);
    } else {
      args.part.statistics = at(statistics).rows(part, 1).reshape({s.n, 4});
    }
    linear_cross_entropy(args, stream);
  }
  [[nodiscard]] LossSums read_sums() const {
    const std::vector<std::int64_t> words = sums.download();
    LossSums read;
    std::memcpy(static_cast<void*>(&read), words.data(), sizeof read);
    return read;
  }

  PartsCase s;
  HostDeviceTensor<T> x, weight;
  HostDeviceTensor<std::int32_t> targets;
  HostDeviceTensor<float> weights;
  HostDeviceTensor<T> dx;
  HostDeviceTensor<float> dweight;
  HostDeviceTensor<double> statistics, merged, scale;
  HostDeviceTensor<std::int64_t> sums;
};

TYPED_TEST(CudaVocabularyParts, LossAndGradientsAreTheHosts) {
  TESSERA_NEEDS_DEVICE();
  using T = TypeParam;
  for (const PartsCase& s : {PartsCase{13, 24, 67, 2}, {13, 24, 67, 3, {1.7, 0.9}}, {130, 40, 2049, 3}, {5, 8, 4, 4}}) {
    SCOPED_TRACE(testing::Message() << s.n << " rows, vocabulary " << s.v << " in " << s.parts);
    PartsRun<T> p(s);
    DeviceStream stream;
    std::size_t host_bytes = 0, bytes = 0;
    for (int part = 0; part < s.parts; ++part) {
      const std::int64_t rows = even_part(s.v, s.parts, part).length;
      host_bytes = std::max(host_bytes, linear_cross_entropy_workspace(s.n, rows, dtype_of<T>::value));
      bytes = std::max(bytes, cuda::linear_cross_entropy_workspace(s.n, rows, dtype_of<T>::value));
    }
    Workspace host_workspace(host_bytes);
    DeviceMemory workspace(bytes);
    p.run([](auto& tensor) { return tensor.on_host(); }, host_stream, host_workspace.view());
    p.run([](auto& tensor) { return tensor.on_device(); }, stream.view(), workspace.view());
    stream.synchronize();
    LossSums host;
    std::memcpy(static_cast<void*>(&host), p.sums.host().data(), sizeof host);
    const LossSums device = p.read_sums();
    EXPECT_EQ(device.tokens, host.tokens);
    EXPECT_NEAR(device.correct, host.correct, (std::is_same_v<T, float> ? 0 : 1));
    const double of_loss = std::is_same_v<T, float> ? 2e-6 : tolerance<T> / 4;
    EXPECT_NEAR(device.loss.value(), host.loss.value(), of_loss * (1 + host.loss.value()));
    EXPECT_LE(device_error(p.dx), 4 * tolerance<T>);
    EXPECT_LE(device_error(p.dweight), (std::is_same_v<T, float> ? 2e-5 : 2 * tolerance<T>));
  }
}

TYPED_TEST(CudaVocabularyParts, LookupsAreTheHostsToTheBit) {
  TESSERA_NEEDS_DEVICE();
  using T = TypeParam;
  constexpr std::int64_t tokens = 600, vocab = 51, parts = 2;
  for (const std::int64_t channels : {5, 64}) {
    std::vector<std::int32_t> numbers;
    for (std::size_t i = 0; i < tokens; ++i) numbers.push_back(static_cast<std::int32_t>(uniform(4, i) * vocab));
    HostDeviceTensor<std::int32_t> ids(numbers, Shape{1, tokens});
    HostDeviceTensor<T> table(normals_of<T>(vocab * channels, 3), Shape{vocab, channels}),
        positions(normals_of<T>(tokens * channels, 4), Shape{tokens, channels}), y(Shape{1, tokens, channels}, T(7.0F)),
        dy(normals_of<T>(tokens * channels, 5), Shape{1, tokens, channels});
    HostDeviceTensor<float> dtable(Shape{vocab, channels}, 7.0F);
    DeviceMemory workspace(embedding_backward_workspace(tokens, test_device()));
    for (int rank = 0; rank < parts; ++rank) {
      const ElementRun rows = even_part(vocab, parts, rank);
      DeviceStream stream;
      const auto run = [&](const auto& at, StreamView on) {
        embedding_forward({.ids = at(ids),
                           .tokens_table = at(table).rows(rows.first, rows.length),
                           .positions_table = at(positions),
                           .y = at(y),
                           .first_id = rows.first},
                          on);
        embedding_backward({.ids = at(ids),
                            .dy = at(dy),
                            .dtokens_table = at(dtable).rows(rows.first, rows.length),
                            .workspace = on.handle != nullptr ? workspace.view() : TensorView{},
                            .first_id = rows.first,
                            .num_ids = vocab},
                           on);
      };
      run([](auto& tensor) { return tensor.on_host(); }, host_stream);
      run([](auto& tensor) { return tensor.on_device(); }, stream.view());
      stream.synchronize();
      EXPECT_EQ(bytes_of(y.download()), bytes_of(y.host()));
    }
    EXPECT_EQ(bytes_of(dtable.download()), bytes_of(dtable.host()));
  }
}

}  // namespace
}  // namespace tessera::kernels
