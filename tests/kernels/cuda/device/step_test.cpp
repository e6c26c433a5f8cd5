// SPDX-License-Identifier: Apache-2.0
// Carries of exact sums: the same integers on host and device.
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

}  // namespace
}  // namespace tessera::kernels
