// SPDX-License-Identifier: Apache-2.0
// Scores of sequences on a device against the host: last tokens, scores, sums, metrics and gradients.
#include "kernels/reward_loss.hpp"

#include "host_device_tensor.hpp"
#include "kernels/preference_loss.hpp"

namespace tessera::kernels {
namespace {

struct ScoreSums {
  LossSums loss;
  std::int64_t metrics[num_preference_sums] = {};
};

template <class T>
class CudaRewardLoss : public testing::Test {};
TYPED_TEST_SUITE(CudaRewardLoss, ElementTypes);

TYPED_TEST(CudaRewardLoss, AsOnTheHost) {
  TESSERA_NEEDS_DEVICE();
  using T = TypeParam;
  constexpr std::int64_t rows = 6, tokens = 300, channels = 130;
  std::vector<std::int32_t> ids(rows * tokens, 3), positions(rows * tokens);
  for (std::int64_t r = 0; r < rows; ++r)
    for (std::int64_t t = 0; t < tokens; ++t) {
      const auto i = static_cast<std::size_t>(r * tokens + t);
      const std::int64_t length = r == 0 ? tokens : r == 1 ? 2 : 260 + r;
      positions[i] = t < length ? static_cast<std::int32_t>(t) : 0;
      if (t >= length - r) ids[i] = 9;  // which pads
    }
  HostDeviceTensor<T> x(normals_of<T>(rows * tokens * channels, 1), Shape{rows * tokens, channels}),
      weight(normals_of<T>(channels, 2), Shape{1, channels}), dx(Shape{rows * tokens, channels}, T(5.0F));
  HostDeviceTensor<float> dweight(Shape{1, channels}, 0.25F),
      margins(std::vector<float>{0.5F, 0, -0.5F, 0, 0, 0}, Shape{rows});
  HostDeviceTensor<std::int32_t> id(ids, Shape{rows, tokens}), position(positions, Shape{rows, tokens}),
      last(Shape{rows}, -1);
  HostDeviceTensor<double> scores(Shape{rows}, 0.0), slopes(Shape{rows}, 0.0), scale(Shape{1}, 0.5);
  DeviceMemory memory(sizeof(ScoreSums));
  auto* const on_device = static_cast<ScoreSums*>(memory.view().data);
  ScoreSums host, device;
  fill_now(test_device(), on_device, 0, sizeof(ScoreSums));
  const auto run = [&](const auto& of, ScoreSums* sums, StreamView stream) {
    score_sequences({of(x), of(weight), of(id), of(position), 9, of(last), of(scores)}, stream);
    reward_loss({of(scores), of(margins), 0.1, of(slopes), &sums->loss, sums->metrics}, stream);
    score_backward(
        {of(x), of(weight), of(last), of(slopes), of(scale).template as<double>(), of(dx), of(dweight), true}, stream);
  };
  run([](auto& tensor) { return tensor.on_host(); }, &host, host_stream);
  {
    const DeviceStream stream;
    run([](auto& tensor) { return tensor.on_device(); }, on_device, stream.view());
  }
  copy_now(test_device(), &device, on_device, sizeof device);
  EXPECT_EQ(last.download(), last.host());
  EXPECT_EQ(last.host()[0], tokens - 1);
  EXPECT_EQ(last.host()[1], tokens);  // all of its two tokens pad, or are the first one
  const std::vector<double> score = scores.download();
  for (std::size_t r = 0; r < score.size(); ++r) EXPECT_NEAR(score[r], scores.host()[r], 1e-9) << r;
  EXPECT_NEAR(device.loss.loss.value(), host.loss.loss.value(), 1e-9);
  EXPECT_EQ(device.loss.tokens, 3);
  EXPECT_EQ(device.loss.correct, host.loss.correct);
  for (int i = 0; i < num_preference_sums; ++i) EXPECT_NEAR(device.metrics[i], host.metrics[i], 2) << i;
  const std::vector<float> of_weight = dweight.download();
  for (std::size_t c = 0; c < of_weight.size(); ++c) ASSERT_NEAR(of_weight[c], dweight.host()[c], 1e-5) << c;
  const std::vector<T> of_x = dx.download();
  for (std::size_t i = 0; i < of_x.size(); ++i)
    ASSERT_NEAR(static_cast<float>(of_x[i]), static_cast<float>(dx.host()[i]), 1e-2) << i;
}

}  // namespace
}  // namespace tessera::kernels
