// SPDX-License-Identifier: Apache-2.0
// Tokens drawn on a device against the host's picker, as one loop: every rule, many numbers, equal logits, logits that
// are not finite.
#include "kernels/sample.hpp"

#include <algorithm>
#include <cmath>
#include <span>

#include "host_device_tensor.hpp"

namespace tessera::kernels {
namespace {

/// As train::TokenPicker::pick, whose sums are in this order.
std::int32_t picked(std::span<const float> logits, const SampleRule& rule, double draw) {
  struct Candidate {
    std::int32_t id;
    float logit;
    double weight;
  };
  const float largest = *std::max_element(logits.begin(), logits.end());
  std::vector<float> sorted(logits.begin(), logits.end());
  std::sort(sorted.begin(), sorted.end(), std::greater<>());
  const bool cuts = rule.top_k > 0 && rule.top_k < static_cast<std::int64_t>(sorted.size());
  const float least = cuts ? sorted[static_cast<std::size_t>(rule.top_k - 1)] : sorted.back();
  std::vector<Candidate> all;
  double total = 0;
  for (std::size_t i = 0; i < logits.size(); ++i)
    if (logits[i] >= least)
      all.push_back({static_cast<std::int32_t>(i), logits[i],
                     std::exp((static_cast<double>(logits[i]) - largest) / rule.temperature)});
  for (const Candidate& c : all) total += c.weight;
  if (rule.top_p < 1) {
    std::stable_sort(all.begin(), all.end(),
                     [](const Candidate& a, const Candidate& b) { return a.weight > b.weight; });
    double kept = 0;
    std::size_t count = 0;
    while (count < all.size() && (count == 0 || kept < rule.top_p * total)) kept += all[count++].weight;
    all.resize(count);
    total = 0;
    for (const Candidate& c : all) total += c.weight;
  }
  double left = draw * total;
  for (const Candidate& c : all)
    if ((left -= c.weight) < 0) return c.id;
  return all.back().id;
}

const SampleRule rules[] = {{1, 0, 1}, {0.7, 40, 1}, {1.5, 0, 0.9}, {0.8, 50, 0.95}, {100, 1, 1}, {0.05, 0, 0.5}};

TEST(CudaSample, TakesThePickersTokens) {
  TESSERA_NEEDS_DEVICE();
  const std::int64_t rows = 32;
  for (const std::int64_t width : {1, 37, 3001}) {
    auto x = normals_of<float>(rows * width, 1, 3);
    for (std::int64_t i = 0; i + 9 < width; i += 7) x[static_cast<std::size_t>(i)] = x[static_cast<std::size_t>(i + 9)];
    std::vector<double> numbers;
    for (std::int64_t r = 0; r < rows; ++r) numbers.push_back(std::fmod(0.618033988749895 * static_cast<double>(r), 1));
    HostDeviceTensor<float> given(x, Shape{rows, width});
    HostDeviceTensor<double> draws(numbers, Shape{rows});
    HostDeviceTensor<std::int32_t> out(Shape{rows}, 77);
    for (const SampleRule& rule : rules) {
      SCOPED_TRACE(testing::Message() << width << ": " << rule.temperature << " " << rule.top_k << " " << rule.top_p);
      DeviceStream stream;
      sample({.x = given.on_device(), .draws = draws.on_device(), .rule = rule, .out = out.on_device()}, stream.view());
      stream.synchronize();
      const std::vector<std::int32_t> chosen = out.download();
      int undecided = 0;
      for (std::size_t r = 0; r < chosen.size(); ++r) {
        const std::span<const float> row(x.data() + static_cast<std::int64_t>(r) * width,
                                         static_cast<std::size_t>(width));
        if (chosen[r] == undecided_token) ++undecided;
        else EXPECT_EQ(chosen[r], picked(row, rule, numbers[r])) << r;
      }
      EXPECT_EQ(undecided, 0);
    }
  }
}

TEST(CudaSample, LeavesToThePickerWhatRoundingDecides) {
  TESSERA_NEEDS_DEVICE();
  const std::int64_t width = 8;
  const float infinity = std::numeric_limits<float>::infinity();
  std::vector<float> x(static_cast<std::size_t>(4 * width), 0.25F);
  x[1] = infinity;
  x[8] = std::numeric_limits<float>::quiet_NaN();
  HostDeviceTensor<float> given(x, Shape{4, width});
  HostDeviceTensor<double> draws({0.5, 0.5, 0.5, 0.5625}, Shape{4});  // half: the end of the fourth token's share
  HostDeviceTensor<std::int32_t> out(Shape{4}, 77);
  DeviceStream stream;
  sample({.x = given.on_device(), .draws = draws.on_device(), .rule = {}, .out = out.on_device()}, stream.view());
  stream.synchronize();
  EXPECT_EQ(out.download(), (std::vector<std::int32_t>{-1, -1, undecided_token, 4}));
}

}  // namespace
}  // namespace tessera::kernels
