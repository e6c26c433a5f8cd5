// SPDX-License-Identifier: Apache-2.0
// Losses of pairs on a device against the host: weights, sums and metrics, and log-probabilities of targets.
#include "kernels/preference_loss.hpp"

#include "host_device_tensor.hpp"

namespace tessera::kernels {
namespace {

constexpr std::int64_t rows = 6, tokens = 300;

struct Sums {
  LossSums loss;
  std::int64_t metrics[num_preference_sums] = {};
};

/// Whether every kind has the host's figures; the sums of a sequence are added in another order.
void expect_figures_of_the_host(bool end_to_end) {
  const Shape shape = end_to_end ? Shape{1, rows * tokens} : Shape{rows, tokens};
  std::vector<float> log_probs(rows * tokens);
  std::vector<std::int32_t> targets(rows * tokens, 1);
  std::vector<double> reference(rows);
  for (std::size_t i = 0; i < log_probs.size(); ++i) {
    log_probs[i] = static_cast<float>(-0.02 * uniform(1, i));
    if (i % 7 == 3 || i % tokens > 280) targets[i] = ignore_index, log_probs[i] = 0;
  }
  for (std::size_t r = 0; r < reference.size(); ++r) reference[r] = -2.0 - uniform(2, r);
  HostDeviceTensor<float> p(log_probs, shape), w(shape, 5.0F), nll(std::vector<float>(rows, 0.25F), Shape{rows});
  HostDeviceTensor<std::int32_t> t(targets, shape),
      e(std::vector<std::int32_t>{250, 600, 900, 1300, 1500, 1790}, Shape{rows});
  HostDeviceTensor<double> q(std::vector<double>(rows * tokens, -0.001), shape);
  const SequenceRows on_host_rows{p.on_host(), t.on_host(), end_to_end ? e.on_host() : TensorView{}, q.on_host()};
  const SequenceRows on_device_rows{p.on_device(), t.on_device(), end_to_end ? e.on_device() : TensorView{},
                                    q.on_device()};
  HostDeviceTensor<double> r(reference, Shape{rows}), s(Shape{rows}, 0.0), scratch(Shape{2, rows}, 0.0),
      matched(Shape{rows}, 0.0);
  DeviceMemory memory(sizeof(Sums));
  auto* const on_device = static_cast<Sums*>(memory.view().data);
  for (const PreferenceKind kind :
       {PreferenceKind::sigmoid, PreferenceKind::robust, PreferenceKind::hinge, PreferenceKind::ipo,
        PreferenceKind::exo_pair, PreferenceKind::discopop, PreferenceKind::simpo, PreferenceKind::nca_pair,
        PreferenceKind::bco_pair, PreferenceKind::sppo_hard, PreferenceKind::apo_zero, PreferenceKind::apo_down,
        PreferenceKind::aot, PreferenceKind::aot_unpaired, PreferenceKind::none, PreferenceKind::orpo}) {
    const bool mean = kind == PreferenceKind::ipo || kind == PreferenceKind::simpo || kind == PreferenceKind::orpo;
    PreferenceLossArgs args{
        .spec = {.kind = kind, .beta = 0.4, .label_smoothing = 0.1, .gamma = 0.5, .mean = mean, .nll = 0.5}};
    if (kind == PreferenceKind::hinge) args.spec.divergence = Divergence::forward_kl;
    if (kind == PreferenceKind::ipo) args.spec.divergence = Divergence::alpha_divergence;
    if (kind == PreferenceKind::robust) args.spec.divergence = Divergence::js_divergence;
    if (kind == PreferenceKind::sigmoid || kind == PreferenceKind::aot) args.spec.tail_weight = 0.3;
    args.spec.weighted = kind == PreferenceKind::bco_pair;
    Sums host, device;
    PreferenceLossArgs here = args, there = args;
    here.rows = on_host_rows;
    here.nll_weights = nll.on_host(), here.weights = w.on_host(), here.sums = &host.loss, here.metrics = host.metrics;
    there.rows = on_device_rows;
    there.nll_weights = nll.on_device(), there.weights = w.on_device();
    there.sums = &on_device->loss, there.metrics = on_device->metrics;
    if (kind != PreferenceKind::orpo) here.reference_sums = r.on_host(), there.reference_sums = r.on_device();
    if (args.spec.sorted()) {
      here.matched = matched.on_host(), there.matched = matched.on_device();
      const double tail = args.spec.tail_weight;
      match_sorted({kind, here.rows, here.reference_sums, scratch.on_host(), here.matched, tail}, host_stream);
      const DeviceStream stream;
      match_sorted({kind, there.rows, there.reference_sums, scratch.on_device(), there.matched, tail}, stream.view());
    }
    fill_now(test_device(), on_device, 0, sizeof(Sums));
    preference_loss(here, host_stream);
    {
      const DeviceStream stream;
      preference_loss(there, stream.view());
    }
    copy_now(test_device(), &device, on_device, sizeof device);
    EXPECT_NEAR(device.loss.loss.value(), host.loss.loss.value(), 1e-9) << static_cast<int>(kind);
    EXPECT_EQ(device.loss.tokens, 3);
    EXPECT_EQ(device.loss.correct, host.loss.correct);
    for (int i = 0; i < num_preference_sums; ++i) EXPECT_NEAR(device.metrics[i], host.metrics[i], 2) << i;
    const std::vector<float> weights = w.download();
    for (std::size_t i = 0; i < weights.size(); ++i) ASSERT_NEAR(weights[i], w.host()[i], 1e-6) << i;
  }
  HostDeviceTensor<float> labels(std::vector<float>{1, -1, 0, 1, 0, -1}, Shape{rows});
  HostDeviceTensor<double> kl(std::vector<double>(rows, 0.25), Shape{rows});
  for (const PreferenceKind kind : {PreferenceKind::kto, PreferenceKind::apo_zero_unpaired}) {
    const PreferenceSpec spec{.kind = kind, .beta = 0.4, .desirable_weight = 1.5};
    Sums host, device;
    fill_now(test_device(), on_device, 0, sizeof(Sums));
    labelled_loss(
        {spec, on_host_rows, r.on_host(), labels.on_host(), kl.on_host(), w.on_host(), &host.loss, host.metrics},
        host_stream);
    {
      const DeviceStream stream;
      labelled_loss({spec, on_device_rows, r.on_device(), labels.on_device(), kl.on_device(), w.on_device(),
                     &on_device->loss, on_device->metrics},
                    stream.view());
    }
    copy_now(test_device(), &device, on_device, sizeof device);
    EXPECT_NEAR(device.loss.loss.value(), host.loss.loss.value(), 1e-9) << static_cast<int>(kind);
    EXPECT_EQ(device.loss.tokens, 4);
    for (int i = 0; i < num_preference_sums; ++i) EXPECT_NEAR(device.metrics[i], host.metrics[i], 2) << i;
    const std::vector<float> weights = w.download();
    for (std::size_t i = 0; i < weights.size(); ++i) ASSERT_NEAR(weights[i], w.host()[i], 1e-6) << i;
  }
  sum_sequences({on_host_rows, s.on_host(), 0.25}, host_stream);
  {
    const DeviceStream stream;
    sum_sequences({on_device_rows, s.on_device(), 0.25}, stream.view());
  }
  const std::vector<double> sums = s.download();
  for (std::size_t i = 0; i < sums.size(); ++i) EXPECT_NEAR(sums[i], s.host()[i], 1e-12);
}

TEST(CudaPreferenceLoss, AsOnTheHost) {
  TESSERA_NEEDS_DEVICE();
  expect_figures_of_the_host(/*end_to_end=*/false);
  expect_figures_of_the_host(/*end_to_end=*/true);
}

}  // namespace
}  // namespace tessera::kernels
