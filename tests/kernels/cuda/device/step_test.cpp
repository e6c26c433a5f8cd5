// SPDX-License-Identifier: Apache-2.0
// Carries of exact sums, clip and skip: the same integers and bits on host and device.
#include "kernels/step.hpp"
#include "host_device_tensor.hpp"
#include "kernels/cuda/ops.hpp"
#include "runtime/base/rng.hpp"

namespace tessera::kernels {
namespace {

constexpr std::int64_t sum_counters = ExactSum::num_counters;

/// Counters of `sums` ExactSums whose digits are up to the bound, of either sign; the last counter of each counts what
/// is not finite.
std::vector<std::int64_t> counters_at_the_bound(std::int64_t sums) {
  std::vector<std::int64_t> counters;
  for (std::int64_t i = 0; i < sums * sum_counters; ++i) {
    const auto bits = philox(7, static_cast<std::uint64_t>(i));
    const auto magnitude = static_cast<std::int64_t>((std::uint64_t{bits[0]} << 32 | bits[1]) >> 2);
    counters.push_back(i % sum_counters == sum_counters - 1 ? i % 2 : bits[2] % 2 != 0 ? magnitude : -magnitude);
  }
  return counters;
}

TEST(CudaStep, CarriesAreTheHosts) {
  TESSERA_NEEDS_DEVICE();
  constexpr int sums = 5;
  HostDeviceTensor<std::int64_t> counters(counters_at_the_bound(sums), Shape{sums * sum_counters});
  DeviceStream stream;
  carry_sums({.counters = counters.host().data(), .sums = sums}, host_stream);
  carry_sums({.counters = counters.data(), .sums = sums}, stream.view());
  stream.synchronize();
  EXPECT_EQ(counters.download(), counters.host());
}

TEST(CudaStep, UnitsJoinAsOnTheHost) {
  TESSERA_NEEDS_DEVICE();
  HostDeviceTensor<std::int64_t> unit(counters_at_the_bound(1), Shape{sum_counters}),
      all(Shape{sum_counters}, std::int64_t{12345}), flag(Shape{1}, std::int64_t{9});
  DeviceStream stream;
  accumulate_norm({.unit = unit.host().data(), .all = all.host().data(), .flag = flag.host().data()}, host_stream);
  accumulate_norm({.unit = unit.data(), .all = all.data(), .flag = flag.data()}, stream.view());
  stream.synchronize();
  EXPECT_EQ(unit.download(), unit.host());
  EXPECT_EQ(all.download(), all.host());
  EXPECT_EQ(flag.download(), flag.host());
}

/// What clip_and_skip reads.
struct StepSums {
  std::vector<std::int64_t> norm2, loss = std::vector<std::int64_t>(sum_counters), flags = {0, 0, 0};
  std::int64_t warm_up = 0;
};

UpdateDecision device_decision(const StepSums& sums, double limit) {
  HostDeviceTensor<std::int64_t> norm2(sums.norm2, Shape{sum_counters}), loss(sums.loss, Shape{sum_counters}),
      flags(sums.flags, Shape{3});
  HostDeviceTensor<StepScalars> step(
      {{.decision = {.clip = 77, .skip = sums.warm_up}, .gradient_scale = 1024, .max_grad_norm = limit}}, Shape{1});
  DeviceStream stream;
  clip_and_skip({norm2.host().data(), loss.host().data(), flags.host().data(), 3, step.host().data()}, host_stream);
  clip_and_skip({norm2.data(), loss.data(), flags.data(), 3, step.data()}, stream.view());
  stream.synchronize();
  const UpdateDecision there = step.download()[0].decision, here = step.host()[0].decision;
  EXPECT_EQ(there.clip, here.clip) << limit;
  EXPECT_EQ(there.skip, here.skip) << limit;
  return there;
}

TEST(CudaStep, ClipAndSkipAreTheHosts) {
  TESSERA_NEEDS_DEVICE();
  ExactSum sum;
  for (int i = -40; i < 40; ++i) sum.add(std::ldexp(1.2345, i));
  const StepSums finite{.norm2 = {sum.counters().begin(), sum.counters().end()}};
  for (const double limit : {0.0, 0.5, 1e9}) {
    EXPECT_EQ(device_decision(finite, limit).skip, 0);
    EXPECT_NE(device_decision(finite, limit).clip, 77);
  }
  StepSums norm = finite, loss = finite, unit = finite, warm_up = finite;
  norm.norm2.back() = 1;
  loss.loss.back() = 1;
  unit.flags[2] = 1;
  warm_up.warm_up = 1;
  for (const StepSums& skipped : {norm, loss, unit, warm_up}) EXPECT_EQ(device_decision(skipped, 1).skip, 1);
}

}  // namespace
}  // namespace tessera::kernels
